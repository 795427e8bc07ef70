"""The isolator `kubernetes`: cordons and taints the node of a device.

Taint, cordon and the mark of ownership are one patch, which the server refuses when somebody else changed the node
meanwhile. The condition goes before the mark when a device is taken out and when it is given back: whoever finds the
mark, or finds it gone, can rely on the rest.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from lightkube.resources.core_v1 import Event, Node, NodeStatus
from lightkube.types import PatchType

from asd.exporters.isolators.kubernetes.api import ConflictError, KubeApi, KubeError, NotFoundError, as_dict, refusals
from asd.exporters.isolators.kubernetes.node_mark import (
    condition_patch,
    event_about,
    held_by,
    isolate_patch,
    marks_of,
    release_patch,
)
from asd.exporters.isolators.marks import event_mark, label
from asd.exporters.isolators.options import seconds, text
from asd.exporters.isolators.public_fault import is_node_name
from asd.isolator import Device, IsolationOwner

_log = logging.getLogger("asd.isolator")
_TRIES = 10  # of changes that somebody else came before

_Node = dict[str, Any]


class Kubernetes:
    """Cordons and taints nodes.

    Args:
        kubeconfig: Path of a kubeconfig; without one the pod's service account, `KUBECONFIG` or `~/.kube/config`.
        context: A context of it; without one the current context.
        effect: Effect of the taint: `NoSchedule` keeps new pods away, `NoExecute` ends those that run too.
        timeout: Seconds to wait for a connection, and for each part of an answer.
    """

    name = "kubernetes"
    whole_nodes = True

    def __init__(
        self, *, kubeconfig: str = "", context: str = "", effect: str = "NoSchedule", timeout: float | str = 10.0
    ) -> None:
        self._effect = text("effect", effect, "NoSchedule|NoExecute", "it must be NoSchedule or NoExecute")
        self._clock: Callable[[], float] = time.time
        self._api = KubeApi(kubeconfig=kubeconfig, context=context, timeout=seconds("timeout", timeout))

    def held(self, device: Device) -> IsolationOwner:
        """Returns who isolated `device`, as `Isolator.held`."""
        with refusals(self.name, device):
            return held_by(self._read(device), label(device))

    def host_since(self, device: Device) -> float | None:
        """Returns the time the node of `device` was made, in seconds since the epoch; None without such a node."""
        with refusals(self.name, device), contextlib.suppress(NotFoundError):
            name = self._node(device)
            with self._api.asking(f"reading node {name}") as client:
                found: Any = client.get(Node, name)
                return float(found.metadata.creationTimestamp.timestamp())
        return None

    def isolate(self, device: Device, reason: str, event_id: str) -> None:
        """Takes the node of `device` out, as `Isolator.isolate`."""
        name = label(device)

        def change(node: _Node) -> _Node | None:
            held = held_by(node, name)
            if held is IsolationOwner.OTHERS:
                self._set_condition(node, {})
                raise ValueError(f"someone else cordoned node {self._node(device)}; it is not changed")
            return None if held is IsolationOwner.OURS else isolate_patch(node, name, reason, event_id, self._effect)

        with refusals(self.name, device):
            node = self._change(device, change)
            self._make_event(node, name, marks_of(node).get(name, {}).get("event", event_id), reason, isolated=True)

    def release(self, device: Device) -> None:
        """Takes the mark of `device` away and, with the last one, gives the node back, as `Isolator.release`."""
        name, events = label(device), []

        def change(node: _Node) -> _Node | None:
            if held_by(node, name) is not IsolationOwner.OURS:
                return None
            events.append(marks_of(node)[name].get("event", ""))
            return release_patch(node, name)

        with refusals(self.name, device):
            node = self._change(device, change)
            if events:
                self._make_event(node, name, events[-1], f"{name} is released", isolated=False)

    def _change(self, device: Device, change: Callable[[_Node], _Node | None]) -> _Node:
        """Brings the node to where `change` has nothing more to do; each try starts from what the server said last."""
        node = self._read(device)
        for attempt in range(_TRIES):
            patch = change(node)
            changed = self._set_condition(node, marks_of(node if patch is None else patch))
            if changed is not None:  # it may have been cordoned since it was read
                node = changed
                continue
            if patch is None:
                return node
            name = self._node(device)
            try:
                with self._api.asking(f"changing node {name}") as client:
                    return as_dict(client.patch(Node, name, patch, patch_type=PatchType.MERGE))
            except ConflictError:
                time.sleep(0.01 * attempt)
                node = self._read(device)
        raise KubeError(f"node {self._node(device)} was changed by somebody else {_TRIES} times meanwhile", retry=True)

    def _set_condition(self, node: _Node, marks: Mapping[str, Mapping[str, str]]) -> _Node | None:
        devices = {name: event_mark(mark.get("event", "")) for name, mark in marks.items()}
        patch = condition_patch(node, devices, self._clock())
        if patch is None:
            return None
        name = node["metadata"]["name"]
        with self._api.asking(f"changing the status of node {name}") as client:
            return as_dict(client.patch(NodeStatus, name, patch, patch_type=PatchType.STRATEGIC))

    def _make_event(self, node: _Node, name: str, event_id: str, message: str, *, isolated: bool) -> None:
        """Makes the Event; one that can't be made is logged only, as the server drops them as it likes anyway."""
        made: Any = Event.from_dict(event_about(node, name, event_id, message, self._clock(), isolated=isolated))
        try:
            with self._api.asking("making an Event") as client:
                client.create(made)
        except ConflictError:
            pass  # told before
        except KubeError as error:
            _log.warning("the isolator %s made no Event: %s", self.name, error.reason)

    def _read(self, device: Device) -> _Node:
        name = self._node(device)
        with self._api.asking(f"reading node {name}") as client:
            return as_dict(client.get(Node, name))

    def _node(self, device: Device) -> str:
        name = device.host
        if not is_node_name(name):
            raise ValueError(f"{name[:80]!r} is not the name of a node: lower-case letters, digits, dots and dashes")
        return name
