"""The isolator `clusterd`: reports a public fault to MindCluster's ClusterD, which separates the chip."""

import time
from collections.abc import Callable
from typing import Any

from asd.errors import IsolationError
from asd.exporters.isolators.clusterd.config_map import FaultConfigMap, SavedFaults
from asd.exporters.isolators.clusterd.fault_list import latest, with_occurrence, with_recovery
from asd.exporters.isolators.kubernetes.api import KubeApi, KubeError, refusals
from asd.exporters.isolators.marks import chip
from asd.exporters.isolators.options import seconds, text
from asd.exporters.isolators.public_fault import is_node_name
from asd.isolator import Device, IsolationOwner

_NAME = r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?"
_VALID_NAME = "lower-case letters, digits, dots and dashes, at most 63"
_TRIES = 10
_LARGEST_CHIP = 31


class ClusterD:
    """Isolator that reports public faults by a ConfigMap, which also stores the reported ones.

    Args:
        kubeconfig: Path of a kubeconfig; without one the pod's service account, `KUBECONFIG` or `~/.kube/config`.
        context: A context of it; without one the current context.
        namespace: Namespace of the ConfigMap.
        config_map: Name of the ConfigMap.
        timeout: Longest time of a request, in seconds.
    """

    name = "clusterd"

    def __init__(
        self,
        *,
        kubeconfig: str = "",
        context: str = "",
        namespace: str = "mindx-dl",
        config_map: str = "asd-public-fault",
        timeout: float | str = 10.0,
    ) -> None:
        self._clock: Callable[[], float] = time.time
        place = text("namespace", namespace, _NAME, _VALID_NAME), text("config_map", config_map, _NAME, _VALID_NAME)
        api = KubeApi(kubeconfig=kubeconfig, context=context, timeout=seconds("timeout", timeout))
        self._faults = FaultConfigMap(api, *place)

    def held(self, device: Device) -> IsolationOwner:
        """Returns the owner of the isolation of `device`, as `Isolator.held`."""
        with refusals(self.name, device):
            return self._held(device, self._faults.read())

    def isolate(self, device: Device, reason: str, event_id: str) -> None:
        """Reports a fault of `device`, as `Isolator.isolate`."""
        node, number = self._place(device)

        def change(saved: SavedFaults) -> dict[str, Any] | None:
            held = self._held(device, saved)
            if held is IsolationOwner.OTHERS:
                raise ValueError("someone else separated the chip by hand; it is not changed")
            if held is IsolationOwner.OURS:
                return None
            return with_occurrence(saved.message, node, number, reason=reason, event_id=event_id, now=self._clock())

        self._change(device, change)

    def release(self, device: Device) -> None:
        """Reports that the fault of `device` has recovered, as `Isolator.release`."""
        node, number = self._place(device)

        def change(saved: SavedFaults) -> dict[str, Any] | None:
            fault = latest(saved.message, node, number)
            if saved.message is None or fault is None or fault["assertion"] != "occur":
                return None
            return with_recovery(saved.message, fault["faultId"], self._clock())

        self._change(device, change)

    def _held(self, device: Device, saved: SavedFaults) -> IsolationOwner:
        node, number = self._place(device)
        fault = latest(saved.message, node, number)
        if fault is not None and fault["assertion"] == "occur":
            return IsolationOwner.OURS
        return IsolationOwner.OTHERS if number in self._faults.separated(node) else IsolationOwner.FREE

    def _change(self, device: Device, change: Callable[[SavedFaults], dict[str, Any] | None]) -> None:
        with refusals(self.name, device):
            for attempt in range(_TRIES):
                saved = self._faults.read()
                wanted = change(saved)
                if wanted is None or self._faults.write(wanted, saved):
                    return
                time.sleep(0.01 * attempt)
            raise KubeError(f"other clients changed the ConfigMap {_TRIES} times meanwhile", retry=True)

    def _place(self, device: Device) -> tuple[str, int]:
        node, number = device.host, chip(device)
        if not is_node_name(node):
            reason = f"{node[:80]!r} is not the name of a node: lower-case letters, digits, dots and dashes"
            raise IsolationError(device, self.name, reason, retry=False)
        if number is None or number > _LARGEST_CHIP:
            reason = f"{device.device[:80]!r} is not a chip; it must be of the form Ascend:3, from 0 to {_LARGEST_CHIP}"
            raise IsolationError(device, self.name, reason, retry=False)
        return node, number
