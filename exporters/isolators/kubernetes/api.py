"""The few requests that are made to a Kubernetes API server, and what can go wrong with each, in sentences."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lightkube import ApiError, Client, KubeConfig
from lightkube import ConfigError as LightkubeConfigError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.resources.core_v1 import ConfigMap, Event, Node, NodeStatus, Pod
from lightkube.types import PatchType

from asd.errors import ConfigError
from asd.exporters.isolators.marks import plain

__all__ = ["ConflictError", "KubeApi", "KubeError"]

_HTTP_ERROR: type[Exception] = ApiError.__mro__[2]  # `HTTPError` of httpx or of httpx2, whichever lightkube is built on
_MANAGER = "asd"
_REFUSALS = {400, 401, 403, 404, 405, 406, 410, 413, 415, 422}
_CONFLICT = 409
_NOT_FOUND = 404
_AT_ONCE = 500  # objects of a list in one answer
# As it comes: the times of a Lease have six digits after the point, and a server refuses others.
_Lease: Any = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")


class KubeError(Exception):
    """A request that the server did not carry out.

    Attributes:
        reason: Why, in words and without a full stop.
        retry: Whether trying again may help.
        code: Status of the answer; 0 when there was none.
    """

    def __init__(self, reason: str, *, retry: bool, code: int = 0) -> None:
        self.reason = reason
        self.retry = retry
        self.code = code
        super().__init__(reason)


class ConflictError(KubeError):
    """The object was changed by somebody else meanwhile, or is there already."""


class KubeApi:
    """A client; objects are plain dictionaries.

    Args:
        kubeconfig: Path of a kubeconfig; without one the pod's service account, `KUBECONFIG` or `~/.kube/config`.
        context: A context of it; without one the current context.
        timeout: Seconds to wait for a connection, and for each part of an answer.

    Raises:
        ConfigError: There is no usable configuration.
    """

    def __init__(self, *, kubeconfig: str = "", context: str = "", timeout: float = 10.0) -> None:
        wait: Any = timeout  # a plain number is as good as httpx's own type
        try:
            self._kubeconfig, self._context, self._timeout = kubeconfig, context, wait
            with self._connected() as client:
                self._server = client.config.cluster.server
        except Exception as error:  # a file in YAML may be wrong in any way
            said = plain(str(error), 300) or type(error).__name__
            names = {"the option kubeconfig": kubeconfig, "the option context": context}
            name = "the option context" if context and "context" in said.lower() else "the option kubeconfig"
            valid = f"it must be a kubeconfig with a cluster, a user and a current context ({said})"
            raise ConfigError(name, names[name], valid) from error

    def _connected(self) -> Client:
        """A client for one request: hours pass until the next, and a token or certificate is another one by then."""
        try:
            found = KubeConfig.from_file(Path(self._kubeconfig)) if self._kubeconfig else KubeConfig.from_env()
            config = found.get(self._context or None)
        except LightkubeConfigError:
            raise
        except Exception as error:  # a file in YAML may be wrong in any way
            raise LightkubeConfigError(str(error) or type(error).__name__) from error
        return Client(config, timeout=self._timeout, field_manager=_MANAGER)

    def get_node(self, name: str) -> dict[str, Any]:
        """The node of this name.

        Raises:
            KubeError: As all requests here.
        """
        with self._asking(f"reading node {name}") as client:
            return _node(client.get(Node, name).to_dict())

    def patch_node(self, name: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        """The node after a merge patch.

        Raises:
            ConflictError: The patch is for another version of the node.
        """
        with self._asking(f"changing node {name}") as client:
            return _node(client.patch(Node, name, dict(patch), patch_type=PatchType.MERGE).to_dict())

    def patch_node_status(self, name: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        """The node after a strategic merge patch of its status."""
        with self._asking(f"changing the status of node {name}") as client:
            return _node(client.patch(NodeStatus, name, dict(patch), patch_type=PatchType.STRATEGIC).to_dict())

    def create_event(self, event: Mapping[str, Any]) -> None:
        """Makes an Event.

        Raises:
            ConflictError: It is there already.
        """
        with self._asking("making an Event") as client:
            made: Any = Event.from_dict(dict(event))
            client.create(made)

    def get_config_map(self, name: str, namespace: str) -> dict[str, Any] | None:
        """The ConfigMap; None when there is none."""
        try:
            with self._asking(f"reading ConfigMap {namespace}/{name}") as client:
                return dict(client.get(ConfigMap, name, namespace=namespace).to_dict())
        except KubeError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    def create_config_map(self, config_map: Mapping[str, Any]) -> None:
        """Makes a ConfigMap.

        Raises:
            ConflictError: It is there already.
        """
        with self._asking(f"making ConfigMap {config_map['metadata']['name']}") as client:
            made: Any = ConfigMap.from_dict(dict(config_map))
            client.create(made)

    def patch_config_map(self, name: str, namespace: str, patch: Mapping[str, Any]) -> None:
        """Changes a ConfigMap by a merge patch.

        Raises:
            ConflictError: The patch is for another version of it.
        """
        with self._asking(f"changing ConfigMap {namespace}/{name}") as client:
            client.patch(ConfigMap, name, dict(patch), namespace=namespace, patch_type=PatchType.MERGE)

    def list_pods(self, namespace: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """The pods of a namespace that bear all of `labels`.

        Raises:
            KubeError: As all requests here.
        """
        with self._asking(f"listing the pods of {namespace}") as client:
            wanted: Any = dict(labels)
            return [pod.to_dict() for pod in client.list(Pod, namespace=namespace, labels=wanted, chunk_size=_AT_ONCE)]

    def get_lease(self, name: str, namespace: str) -> dict[str, Any] | None:
        """The Lease; None when there is none."""
        try:
            with self._asking(f"reading Lease {namespace}/{name}") as client:
                return _versioned(client.get(_Lease, name, namespace=namespace))
        except KubeError as error:
            if error.code == _NOT_FOUND:
                return None
            raise

    def put_lease(self, lease: Mapping[str, Any]) -> dict[str, Any]:
        """Makes a Lease, or replaces the version of it that `lease` names; the Lease after that.

        Raises:
            ConflictError: It is there already, or was changed by somebody else meanwhile.
        """
        meta = lease["metadata"]
        with self._asking(f"writing Lease {meta['namespace']}/{meta['name']}") as client:
            made = _Lease.from_dict(dict(lease))
            return _versioned(client.replace(made) if meta.get("resourceVersion") else client.create(made))

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[Client]:
        try:
            with self._connected() as client:
                yield client
        except ApiError as error:
            code = error.response.status_code
            kind = ConflictError if code == _CONFLICT else KubeError
            said = plain(error.status.message or "", 300).rstrip(".") or "without a word"
            reason = f"{what}: the API server answered {code}: {said}"
            raise kind(reason, retry=code not in _REFUSALS, code=code) from error
        except LightkubeConfigError as error:
            raise KubeError(f"{what}: {plain(str(error), 300)}", retry=True) from error
        except _HTTP_ERROR as error:
            answer = getattr(error, "response", None)
            code = answer.status_code if answer is not None else 0
            said = f"answered {code}" if code else f"{plain(str(error), 200)} ({type(error).__name__})"
            raise KubeError(
                f"{what}: the API server at {self._server}: {said}", retry=code not in _REFUSALS, code=code
            ) from error
        except Exception as error:  # an answer that is no Kubernetes object may break the client anywhere
            reason = (
                f"{what}: the answer of the API server at {self._server} can't be understood: {plain(repr(error), 200)}"
            )
            raise KubeError(reason, retry=True) from error


def _versioned(answer: Any) -> dict[str, Any]:
    """Such an answer as a plain dictionary, if it has a version."""
    found = dict(answer.to_dict())
    if not found.get("metadata", {}).get("resourceVersion"):
        raise ValueError("no version")
    return found


def _node(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Such an answer, if it has what every node has."""
    if not answer.get("metadata", {}).get("resourceVersion") or not answer["metadata"].get("name"):
        raise ValueError("no node")
    return dict(answer)
