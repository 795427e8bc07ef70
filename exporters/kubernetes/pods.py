"""Pods known to the API server: addresses of agents, and nodes of a job."""

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
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


class _Pods:
    """Pods, listed every 10 s; the last known ones stay while the API server does not answer.

    Args:
        what: Word for them in sentences.
        api: The client; by default one with the pod's service account, `KUBECONFIG` or `~/.kube/config`.
        clock: Seconds from any point in time.
    """

    def __init__(self, what: str, api: KubeApi | None, clock: Callable[[], float]) -> None:
        self._what, self._api, self._clock, self._next = what, api or KubeApi(), clock, clock()
        self.problem = ""  # why the pods are not known now, in one sentence without a full stop; empty for no problem

    def _listed(self, namespaces: Iterable[str], labels: dict[str, Any]) -> list[dict[str, Any]] | None:
        """Returns the pods; None while it is too early, or the server does not answer."""
        if self._clock() < self._next:
            return None
        self._next, found = self._clock() + _SECONDS, []
        try:
            with self._api.asking(f"listing the pods of {', '.join(namespaces)}") as client:
                for namespace in namespaces:
                    pods = client.list(Pod, namespace=namespace, labels=labels, chunk_size=_AT_ONCE)
                    found += [pod.to_dict() for pod in pods]
        except KubeError as error:
            self.problem = f"the {self._what} are unchanged: {error.reason}"
            return None
        self.problem = ""
        return found


class PodTargets(_Pods):
    """Agents in the pods of a namespace with given labels, except for terminating ones.

    The API server gives the node of an agent. The agent's certificate must be for that name, or for the `server_name`
    of the client configuration.

    Args:
        place: `NAMESPACE/LABEL=VALUE[,LABEL=VALUE...][:PORT]`; the port is 9464 when it is not given.
        api: The client, as in `_Pods`.
        clock: Seconds from any point in time.
    """

    def __init__(self, place: str, api: KubeApi | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        match = _PLACE.fullmatch(place)
        self._port = int((match and match["port"]) or _PORT)
        if match is None or not 1 <= self._port <= 65535:
            raise ConfigError("--agents", f"kubernetes:{place}", _FORM)
        self._namespace = match["namespace"]
        self._labels: dict[str, Any] = dict(each.split("=", 1) for each in match["labels"].split(","))
        super().__init__("agents", api, clock)
        self._waiting: dict[str, float] = {}
        self._targets: list[Target] = []

    def look(self) -> list[Target]:
        """Returns one target for each pod; the last known ones when the API server does not answer."""
        pods = self._listed([self._namespace], self._labels)
        if pods is not None:
            waiting, self._waiting = self._waiting, {}
            found = [self._target(pod, waiting, self._clock()) for pod in pods]
            self._targets = [target for target in found if target is not None]
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


class JobPods(_Pods):
    """Pods with a label whose value is the name of their run.

    Args:
        place: Name of the label, for example `asd.mindspore.org/run`; after an `@` the namespaces whose pods are
            trusted, as in `asd.mindspore.org/run@training,asd`, without it all.
        api: The client, as in `_Pods`.
        clock: Seconds from any point in time.
    """

    def __init__(self, place: str, api: KubeApi | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._/-]*(@[a-z0-9-]+(,[a-z0-9-]+)*)?", place, re.ASCII):
            valid = "it must be kubernetes:LABEL or kubernetes:LABEL@NAMESPACE,NAMESPACE"
            raise ConfigError("--jobs", f"kubernetes:{place}", valid)
        label, _, namespaces = place.partition("@")
        self._namespaces = namespaces.split(",") if namespaces else ["*"]
        self._label: dict[str, Any] = {label: operators.exists()}
        self._name = label
        super().__init__("jobs", api, clock)
        self._jobs: dict[str, set[str]] = {}

    def look(self) -> list[Target]:
        """Lists the pods of each run; the last known ones stay when the API server does not answer."""
        pods = self._listed(self._namespaces, self._label)
        if pods is not None:
            self._jobs = {}
            for pod in pods:
                if node := (pod.get("spec") or {}).get("nodeName"):
                    self._jobs.setdefault(pod["metadata"]["labels"][self._name], set()).add(node)
        return []

    def hosts(self, job: str) -> Collection[str]:
        """Returns the nodes of a job."""
        return self._jobs.get(job, ())
