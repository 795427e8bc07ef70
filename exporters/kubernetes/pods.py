"""Pods known to the API server: addresses of agents, and nodes of a job."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from lightkube import operators
from lightkube.resources.core_v1 import Pod

from asd.errors import ConfigError
from asd.exporters.isolators.kubernetes.api import KubeApi, KubeError
from asd.handler.inputs.targets import Target

_SECONDS = 10.0  # between two looks
_PATIENCE = 60.0  # seconds in which a new pod without an address is not reported
_PORT = 9464
_AT_ONCE = 500  # pods of a list in one answer
_LABEL = r"[A-Za-z0-9][A-Za-z0-9._/-]*=[A-Za-z0-9._-]*"
_PLACE = re.compile(
    rf"(?P<namespace>[a-z0-9-]+)/(?P<labels>{_LABEL}(?:,{_LABEL})*)(?::(?P<port>[0-9]{{1,5}}))?", re.ASCII
)
_FORM = "it must be kubernetes:NAMESPACE/LABEL=VALUE or kubernetes:NAMESPACE/LABEL=VALUE:PORT"
_ENDED = ("Succeeded", "Failed")


class PodTargets:
    """Pods of a namespace with given labels, except for terminating ones; listed every 10 s.

    The API server gives the node of an agent. The agent's certificate must be for that name, or for the `server_name`
    of the client configuration.

    Args:
        place: `NAMESPACE/LABEL=VALUE[,LABEL=VALUE...][:PORT]`; the port is 9464 when it is not given.
        api: The client; by default one with the pod's service account, `KUBECONFIG` or `~/.kube/config`.
        clock: Seconds from any point in time.

    Attributes:
        problem: Why the pods are not known now, in one sentence without a full stop; empty for no problem.

    Raises:
        ConfigError: `place` is not valid, or there is no usable configuration.
    """

    def __init__(self, place: str, api: KubeApi | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        match = _PLACE.fullmatch(place)
        self._port = int((match and match["port"]) or _PORT)
        if match is None or not 1 <= self._port <= 65535:
            raise ConfigError("--agents", f"kubernetes:{place}", _FORM)
        self._namespace = match["namespace"]
        self._labels: dict[str, Any] = dict(each.split("=", 1) for each in match["labels"].split(","))
        self._api = api or KubeApi()
        self._clock = clock
        self._next = clock()
        self._waiting: dict[str, float] = {}
        self._targets: list[Target] = []
        self.problem = ""

    def look(self) -> list[Target]:
        """Returns one target for each pod; the last known ones when the API server does not answer."""
        now = self._clock()
        if now < self._next:
            return self._targets
        self._next = now + _SECONDS
        try:
            with self._api.asking(f"listing the pods of {self._namespace}") as client:
                listed = client.list(Pod, namespace=self._namespace, labels=self._labels, chunk_size=_AT_ONCE)
                pods = [pod.to_dict() for pod in listed]
        except KubeError as error:
            self.problem = f"the agents stay as they were, for {error.reason}"
            return self._targets
        waiting, self._waiting = self._waiting, {}
        found = [self._target(pod, waiting, now) for pod in pods]
        self._targets = [target for target in found if target is not None]
        self.problem = ""
        return self._targets

    def _target(self, pod: Mapping[str, Any], waiting: Mapping[str, float], now: float) -> Target | None:
        """Returns the agent in a pod; None while it is not there yet, or has ended."""
        meta, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
        node, name, phase = spec.get("nodeName") or "", str(meta.get("name")), status.get("phase") or "Pending"
        if meta.get("deletionTimestamp") or phase in _ENDED:
            return None
        address = status.get("podIP") or ""
        if address and node:
            return Target(address, self._port, node, node)
        since = self._waiting[name] = waiting.get(name, now)
        if now - since < _PATIENCE:
            return None
        lacks = "address" if node else "node"
        return Target(name, self._port, node, node or name, away=f"its pod {name} is {phase} and has no {lacks}")


class JobPods:
    """Pods with a label whose value is the name of their run; listed every 10 s.

    Args:
        place: Name of the label, for example `asd.mindspore.org/run`; after an `@` the namespaces whose pods are
            trusted, as in `asd.mindspore.org/run@training,asd`, without it all.
        api: The client, as in `PodTargets`.
        clock: Seconds from any point in time.

    Attributes:
        problem: Why the pods are not known now, in one sentence without a full stop; empty for no problem.

    Raises:
        ConfigError: The label is not valid, or there is no usable configuration.
    """

    def __init__(self, place: str, api: KubeApi | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*(@[a-z0-9-]+(,[a-z0-9-]+)*)?", place, re.ASCII):
            valid = "it must be kubernetes:LABEL or kubernetes:LABEL@NAMESPACE,NAMESPACE"
            raise ConfigError("--jobs", f"kubernetes:{place}", valid)
        label, _, namespaces = place.partition("@")
        self._namespaces = namespaces.split(",") if namespaces else ["*"]
        self._label: dict[str, Any] = {label: operators.exists()}
        self._name = label
        self._api = api or KubeApi()
        self._clock = clock
        self._next = clock()
        self._jobs: dict[str, set[str]] = {}
        self.problem = ""

    def look(self) -> list[Target]:
        """Lists the pods of each run; the last known ones stay when the API server does not answer."""
        if self._clock() < self._next:
            return []
        self._next = self._clock() + _SECONDS
        found: dict[str, set[str]] = {}
        try:
            with self._api.asking("listing the pods of jobs") as client:
                for namespace in self._namespaces:
                    for pod in client.list(Pod, namespace=namespace, labels=self._label, chunk_size=_AT_ONCE):
                        meta, spec = pod.to_dict()["metadata"], pod.to_dict().get("spec") or {}
                        if node := spec.get("nodeName"):
                            found.setdefault(meta["labels"][self._name], set()).add(node)
        except KubeError as error:
            self.problem = f"the jobs stay as they were, for {error.reason}"
        else:
            self._jobs, self.problem = found, ""
        return []

    def hosts(self, job: str) -> Collection[str]:
        """Returns the nodes of a job."""
        return self._jobs.get(job, ())
