"""Requests to a Kubernetes API server: a client for each, and its failures as sentences."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightkube import ApiError, Client, KubeConfig
from lightkube import ConfigError as LightkubeConfigError

from asd.errors import ConfigError, IsolationError
from asd.exporters.isolators.marks import plain
from asd.isolator import Device

_HTTP_ERROR: type[Exception] = ApiError.__mro__[2]  # `HTTPError` of httpx or of httpx2, whichever lightkube is built on
_MANAGER = "asd"
_REFUSALS = {400, 401, 403, 404, 405, 406, 410, 413, 415, 422}


class KubeError(Exception):
    """Raised for a request that the server did not carry out."""

    def __init__(self, reason: str, *, retry: bool) -> None:
        self.reason = reason  # reason as text, without a full stop
        self.retry = retry  # whether a retry may help
        super().__init__(reason)


class ConflictError(KubeError):
    """Raised when the object was changed meanwhile, or exists already."""


class NotFoundError(KubeError):
    """Raised when there is no such object."""


class KubeApi:
    """Access to an API server: a client for each request, with failures as sentences.

    Args:
        kubeconfig: Path of a kubeconfig; without one the pod's service account, `KUBECONFIG` or `~/.kube/config`.
        context: A context of it; without one the current context.
        timeout: Seconds to wait for a connection, and for each part of an answer.
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
        """Returns a client for one request: until the next, hours later, a token or certificate may have changed."""
        try:
            found = KubeConfig.from_file(Path(self._kubeconfig)) if self._kubeconfig else KubeConfig.from_env()
            config = found.get(self._context or None)
        except LightkubeConfigError:
            raise
        except Exception as error:  # a file in YAML may be wrong in any way
            raise LightkubeConfigError(str(error) or type(error).__name__) from error
        return Client(config, timeout=self._timeout, field_manager=_MANAGER)

    @contextlib.contextmanager
    def asking(self, what: str) -> Iterator[Client]:
        """Yields a client for one request; errors in the block become sentences that begin with `what`."""
        try:
            with self._connected() as client:
                yield client
        except ApiError as error:
            code = error.response.status_code
            kind = {404: NotFoundError, 409: ConflictError}.get(code, KubeError)
            said = plain(error.status.message or "", 300).rstrip(".") or "no message"
            reason = f"{what}: the API server answered {code}: {said}"
            raise kind(reason, retry=code not in _REFUSALS) from error
        except LightkubeConfigError as error:
            raise KubeError(f"{what}: {plain(str(error), 300)}", retry=True) from error
        except _HTTP_ERROR as error:
            answer = getattr(error, "response", None)
            code = answer.status_code if answer is not None else 0
            said = f"answered {code}" if code else f"{plain(str(error), 200)} ({type(error).__name__})"
            raise KubeError(f"{what}: the API server at {self._server}: {said}", retry=code not in _REFUSALS) from error
        except Exception as error:  # an answer that is not a Kubernetes object may break the client anywhere
            reason = (
                f"{what}: the answer of the API server at {self._server} can't be understood: {plain(repr(error), 200)}"
            )
            raise KubeError(reason, retry=True) from error


@contextlib.contextmanager
def refusals(isolator: str, device: Device) -> Iterator[None]:
    """Converts errors in the block to errors of this isolator about `device`."""
    try:
        yield
    except KubeError as error:
        raise IsolationError(device, isolator, error.reason, retry=error.retry) from error
    except ValueError as error:
        raise IsolationError(device, isolator, str(error), retry=False) from error


def as_dict(answer: Any) -> dict[str, Any]:
    """Returns an object from the server as a plain dictionary."""
    found = dict(answer.to_dict())
    metadata = found.get("metadata", {})
    if not metadata.get("name") or not metadata.get("resourceVersion"):
        raise ValueError("it is no object")
    return found
