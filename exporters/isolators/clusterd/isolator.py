"""The isolator `clusterd`: reports a public fault to MindCluster's ClusterD, which separates the chip.

Every device that is out is a fault with the assertion `occur` in one message; giving it back sends `recover` with the
id and the time of that fault. Others may hold a chip too: the device plugin lists those separated by hand.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from asd.errors import ConfigError, IsolationError
from asd.exporters.isolators.clusterd.fault_list import latest, with_occurrence, with_recovery
from asd.exporters.isolators.clusterd.transport import Door, DoorError, ToldFaults
from asd.exporters.isolators.marks import chip
from asd.exporters.isolators.options import NodeNames, choice, seconds, text
from asd.exporters.isolators.public_fault import CODES, is_node_name
from asd.isolator import Device, Held

__all__ = ["ClusterD"]

_NAME = r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?"
_TRIES = 10
_LARGEST_CHIP = 31


class ClusterD:
    """Reports public faults.

    Args:
        transport: `configmap`, which needs the extra `k8s`, or `grpc`, which needs the extra `grpc`.
        kubeconfig: Path of a kubeconfig; without one the pod's service account, `KUBECONFIG` or `~/.kube/config`.
        context: A context of it; without one the current context.
        namespace: Namespace of the ConfigMap.
        config_map: Name of the ConfigMap.
        target: Host and port of the gRPC service.
        state: With `grpc`, the file to keep in what was told.
        code: The nine-digit fault code, one of those that are registered with ClusterD.
        nodes: Hosts that Kubernetes knows by another name, as a mapping or as `host1=node1,host2=node2`.
        strip_domain: Whether a host `n1.example` is the node `n1`.
        timeout: Seconds that a request may take.

    Raises:
        ConfigError: An option is not valid.
    """

    name = "clusterd"

    def __init__(  # noqa: PLR0913
        self, *, transport: str = "configmap", kubeconfig: str = "", context: str = "", namespace: str = "mindx-dl",
        config_map: str = "asd-public-fault", target: str = "", state: str | Path = "", code: str = "020011001",
        nodes: Mapping[str, str] | str = "", strip_domain: bool | str = False, timeout: float | str = 10.0,
    ) -> None:  # fmt: skip
        self._node_of = NodeNames(nodes, strip_domain)
        self._code = choice("code", code, tuple(CODES))
        self._clock: Callable[[], float] = time.time
        wait = seconds("timeout", timeout)
        names = [text(name, value, _NAME, "lower-case letters, digits, dots and dashes, at most 63")
                 for name, value in (("namespace", namespace), ("config_map", config_map))]  # fmt: skip
        if choice("transport", transport, ("configmap", "grpc")) == "grpc":
            self._door = _grpc_door(target, str(state), wait)
        else:
            self._door = _config_map_door(kubeconfig, context, wait, *names)

    def held(self, device: Device) -> Held:
        """Who holds `device` out, as `Isolator.held`."""
        with self._sentences(device):
            return self._held(device, self._door.told())

    def isolate(self, device: Device, reason: str, event_id: str) -> None:
        """Reports a fault of `device`, as `Isolator.isolate`.

        Raises:
            IsolationError: Also when the chip was separated by hand.
        """
        node, number = self._place(device)

        def change(told: ToldFaults) -> tuple[dict[str, object], str] | None:
            held = self._held(device, told)
            if held is Held.OTHERS:
                raise ValueError("somebody else has separated the chip by hand, so it is left alone")
            if held is Held.OURS:
                return None
            fault = latest(told.message, node, number)
            if told.message is not None and fault is not None and fault["assertion"] == "occur":
                return dict(told.message), fault["faultId"]  # it was not confirmed: the same once more
            return with_occurrence(
                told.message, node, number, code=self._code, reason=reason, event_id=event_id, now=self._clock()
            )

        self._change(device, change)

    def release(self, device: Device) -> None:
        """Reports that the fault of `device` has recovered, as `Isolator.release`."""
        node, number = self._place(device)

        def change(told: ToldFaults) -> tuple[dict[str, object], str] | None:
            fault = latest(told.message, node, number)
            if told.message is None or fault is None:
                return None
            if fault["assertion"] != "occur":
                confirmed = fault["faultId"] not in told.pending
                return None if confirmed else (dict(told.message), fault["faultId"])
            return with_recovery(told.message, fault["faultId"], self._clock()), fault["faultId"]

        self._change(device, change)

    def _held(self, device: Device, told: ToldFaults) -> Held:
        node, number = self._place(device)
        fault = latest(told.message, node, number)
        if fault is not None and (fault["assertion"] == "occur") is not (fault["faultId"] in told.pending):
            return Held.OURS
        return Held.OTHERS if number in self._door.separated(node) else Held.FREE

    def _change(self, device: Device, change: Callable[[ToldFaults], tuple[dict[str, object], str] | None]) -> None:
        with self._sentences(device):
            for attempt in range(_TRIES):
                told = self._door.told()
                wanted = change(told)
                if wanted is None or self._door.tell(*wanted, told):
                    return
                time.sleep(0.01 * attempt)
            raise DoorError(f"somebody else came before {_TRIES} times", retry=True)

    def _place(self, device: Device) -> tuple[str, int]:
        node, number = self._node_of(device), chip(device)
        if not is_node_name(node):
            reason = f"{node[:80]!r} is not the name of a node: lower-case letters, digits, dots and dashes"
            raise IsolationError(device, self.name, reason, retry=False)
        if number is None or number > _LARGEST_CHIP:
            reason = f"{device.device[:80]!r} names no chip; valid is one such as Ascend:3, from 0 to {_LARGEST_CHIP}"
            raise IsolationError(device, self.name, reason, retry=False)
        return node, number

    @contextlib.contextmanager
    def _sentences(self, device: Device) -> Iterator[None]:
        try:
            yield
        except DoorError as error:
            raise IsolationError(device, self.name, error.reason, retry=error.retry) from error
        except ValueError as error:
            raise IsolationError(device, self.name, str(error), retry=False) from error


def _config_map_door(kubeconfig: str, context: str, timeout: float, namespace: str, name: str) -> Door:
    from asd.exporters.isolators.clusterd.by_config_map import ConfigMapDoor  # the extra k8s
    from asd.exporters.isolators.kubernetes.api import KubeApi

    return ConfigMapDoor(KubeApi(kubeconfig=kubeconfig, context=context, timeout=timeout), name, namespace)


def _grpc_door(target: str, state: str, timeout: float) -> Door:
    if not state:
        raise ConfigError("the option state", state, "with the transport grpc it must be the path of a file")
    text("target", target, r"[^\s:/]+:[0-9]{1,5}|\[[0-9a-fA-F:]+\]:[0-9]{1,5}", "it must be a host and a port")
    from asd.exporters.isolators.clusterd.by_grpc import GrpcDoor  # the extra grpc

    return GrpcDoor(target, Path(state), timeout)
