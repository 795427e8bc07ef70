"""What the API server knows of pods: where the agents are, and on which nodes the pods of a job run."""

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
_PATIENCE = 60.0  # seconds in which a new pod may have no address, and nobody hears of it
_PORT = 9464
_AT_ONCE = 500  # pods of a list in one answer
_LABEL = r"[A-Za-z0-9][A-Za-z0-9._/-]*=[A-Za-z0-9._-]*"
_PLACE = re.compile(
    rf"(?P<namespace>[a-z0-9-]+)/(?P<labels>{_LABEL}(?:,{_LABEL})*)(?::(?P<port>[0-9]{{1,5}}))?", re.ASCII
)
_FORM = "it must be kubernetes:NAMESPACE/LABEL=VALUE or kubernetes:NAMESPACE/LABEL=VALUE:PORT"
_ENDED = ("Succeeded", "Failed")


class PodTargets:
    """The pods of a namespace that bear some labels, and were not told to end; asked every 10 s.

    Which node an agent is of, the API server says; its certificate has to be for that name, or for the `server_name` of
    the client configuration.

    Args:
        place: `NAMESPACE/LABEL=VALUE[,LABEL=VALUE...][:PORT]`; the port is 9464 when it is not given.
        api: The client; by default one with the pod's service account, `KUBECONFIG` or `~/.kube/config`.
        clock: Seconds from any point in time.

    Attributes:
        problem: What keeps it from knowing the pods now, in one sentence without a full stop; empty for nothing.

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
        """One for each pod; when the API server does not say, those of the last time."""
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
        """The agent in a pod; None while there is none yet, or none any more."""
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
    """The pods with a label whose value is the name of their run; asked every 10 s.

    Args:
        place: The label's name, for example `asd.mindspore.org/run`; behind an `@` the namespaces whose pods are
            believed, as in `asd.mindspore.org/run@training,asd`, without it all.
        api: The client, as in `PodTargets`.
        clock: Seconds from any point in time.

    Attributes:
        problem: What keeps it from knowing the pods now, in one sentence without a full stop; empty for nothing.

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
        """Asks where the pods of each run are; when the API server does not say, they stay as they were."""
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
        """On which nodes a job runs."""
        return self._jobs.get(job, ())
