"""Election of the handler that acts among several: the holder of a Lease of Kubernetes.

A holder renews every 2 s and stops ten seconds after the start of its last successful renewal. Others wait until the
Lease has not changed for 15 s, by their own clock. So no clocks are compared, and no handler begins before the holder
has stopped. Each renewal names the version that was read: of two tries at once the server refuses one.

The Lease also keeps the record for the next holder, see `asd.handler.act.succession`.
"""

import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from lightkube.generic_resource import create_namespaced_resource

from asd.errors import ConfigError
from asd.exporters.isolators.kubernetes.api import ConflictError, KubeApi, KubeError, NotFoundError, as_dict

ANNOTATION = "asd.mindspore.org/state"
_LEASE_SECONDS = 15
# Kept as received: its times have six digits after the point, and a server refuses others.
_Lease: Any = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
_DEADLINE_SECONDS = 10.0  # shorter by the time of a request that was sent in the last moment
_RENEW_SECONDS = 2.0
_ANSWER_SECONDS = 3.0  # for each part of an answer
_GLANCE_SECONDS, _SHORT_SECONDS = 0.25, 0.01
_TRIES = 3  # where somebody came before
_PLACE = re.compile(r"([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)", re.ASCII)


class KubeLease:
    """Lease that this process tries to hold from `start` to `close`, as `asd.handler.act.succession.Leadership`.

    Args:
        place: `NAMESPACE/NAME` of the Lease, which is made when it does not exist.
        api: The client; by default one with the pod's service account, `KUBECONFIG` or `~/.kube/config`.
        identity: Name of this holder; by default this machine's name and a random part.
        clock: Seconds from any point in time; must be monotonic and count sleep too.
    """

    def __init__(
        self,
        place: str,
        api: KubeApi | None = None,
        identity: str = "",
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        match = _PLACE.fullmatch(place)
        if match is None:
            raise ConfigError("--lease", place, "it must be NAMESPACE/NAME, for example asd/asd-handler")
        self.namespace, self.name = match.groups()
        self.identity = identity or f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        self.holder = self.record = ""  # holder as last read, empty for none; and the record that it left
        self.problem = ""  # why it cannot be held now, in one sentence without a full stop; empty for no problem
        self.looked = False  # whether the server has answered who holds it
        self._api = api or KubeApi(timeout=_ANSWER_SECONDS)
        self._clock = clock
        self._left: str | None = None
        self._kept: dict[str, Any] | None = None
        self._holds = False
        self._until = -float("inf")  # before it was held for the first time
        self._version, self._seen = "", clock()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def acts(self) -> bool:
        """Returns whether this process acts, for at least this moment."""
        return self._holds and self._clock() < self._until

    def start(self, on_loss: Callable[[], None], wake: Callable[[], None] = lambda: None) -> None:
        """Starts the threads that renew and watch the Lease.

        Args:
            on_loss: Called at once, in another thread, when the held Lease could not be renewed in time. It must end
                everything that acts, since another handler may begin five seconds later.
            wake: Called, in another thread, when this process begins to hold it.
        """
        for name, work in (("asd-lease", lambda: self._renew(wake)), ("asd-lease-watch", lambda: self._watch(on_loss))):
            self._threads.append(threading.Thread(target=work, name=name, daemon=True))
            self._threads[-1].start()

    def leave(self, record: str) -> None:
        """Sets the `record` that the next renewal writes, for the next holder."""
        self._left = record

    def confirm(self, record: str) -> bool:
        """Writes `record` now; returns whether the server accepted it, which it does from the holder only."""
        if not self.acts:
            return False
        self._left = record
        with self._lock:
            return self._try() and self.acts

    def close(self) -> None:
        """Releases the Lease, so that another handler need not wait."""
        self._stop.set()
        with self._lock:
            if self.acts:
                try:
                    lease = self._get()
                    if lease is not None and _spec(lease).get("holderIdentity") == self.identity:
                        self._put(self._ours(lease, holder=""))
                except KubeError:
                    pass  # it ends by itself
            self._holds = False
        for thread in self._threads:
            thread.join(2 * _ANSWER_SECONDS)

    def _renew(self, wake: Callable[[], None]) -> None:
        while not self._stop.is_set():
            held = self._holds
            with self._lock:
                if not self._stop.is_set():
                    self._try()
            if self._holds and not held:
                wake()
            self._stop.wait(_RENEW_SECONDS)

    def _watch(self, on_loss: Callable[[], None]) -> None:
        while not self._stop.wait(max(min(self._until - self._clock(), _GLANCE_SECONDS), _SHORT_SECONDS)):
            if self._until > -float("inf") and not self.acts:
                on_loss()
                return

    def _try(self) -> bool:
        """Reads, and renews or takes the Lease if possible; returns whether the server accepted it."""
        for _ in range(_TRIES):
            try:
                taken = self._renew_or_look()
            except ConflictError as error:  # somebody came before
                self.problem, self._kept = error.reason, None
            except KubeError as error:
                self.problem, self._kept = error.reason, None
                return False
            else:
                self.looked, self.problem = True, ""
                return taken
        return False

    def _renew_or_look(self) -> bool:
        began = self._clock()
        lease = self._kept or self._get()
        if lease is not None and not self._may_take(lease):
            self.holder, self.record, self._holds = str(_spec(lease).get("holderIdentity") or ""), _record(lease), False
            return False
        kept = self._put(self._ours(lease or {}, holder=self.identity))
        if not self._holds:  # the record up to this moment
            self.record = _record(kept)
        self._kept = kept  # after a change by others the server would refuse our next version
        self.holder, self._until, self._holds = self.identity, began + _DEADLINE_SECONDS, True
        return True

    def _get(self) -> dict[str, Any] | None:
        """Returns the Lease; None when it does not exist."""
        try:
            with self._api.asking(f"reading Lease {self.namespace}/{self.name}") as client:
                return as_dict(client.get(_Lease, self.name, namespace=self.namespace))
        except NotFoundError:
            return None

    def _put(self, lease: dict[str, Any]) -> dict[str, Any]:
        """Creates the Lease, or replaces the version of it in `lease`; returns the new Lease."""
        with self._api.asking(f"writing Lease {self.namespace}/{self.name}") as client:
            made = _Lease.from_dict(lease)
            return as_dict(client.replace(made) if lease["metadata"].get("resourceVersion") else client.create(made))

    def _may_take(self, lease: dict[str, Any]) -> bool:
        """Returns whether the Lease is ours, free, or unchanged for as long as its holder declared."""
        spec, version = _spec(lease), lease["metadata"]["resourceVersion"]
        if version != self._version:
            self._version, self._seen = version, self._clock()
        holder = spec.get("holderIdentity")
        seconds = max(float(spec.get("leaseDurationSeconds") or 0), _LEASE_SECONDS)
        return holder == self.identity or not holder or self._clock() - self._seen >= seconds

    def _ours(self, lease: dict[str, Any], *, holder: str) -> dict[str, Any]:
        """Returns the Lease with our fields; other fields stay."""
        spec, meta = _spec(lease), dict(lease.get("metadata") or {})
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        record = self._left if self._holds and self._left is not None else _record(lease)
        annotations = {**(meta.get("annotations") or {}), ANNOTATION: record}
        new = spec.get("holderIdentity") != holder
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**meta, "name": self.name, "namespace": self.namespace, "annotations": annotations},
            "spec": {
                **spec,
                "holderIdentity": holder,
                "leaseDurationSeconds": _LEASE_SECONDS,
                "acquireTime": now if new else spec.get("acquireTime", now),
                "renewTime": now,
                "leaseTransitions": int(spec.get("leaseTransitions") or 0) + (1 if new and holder else 0),
            },
        }


def _spec(lease: dict[str, Any]) -> dict[str, Any]:
    return dict(lease.get("spec") or {})


def _record(lease: dict[str, Any]) -> str:
    return str(((lease.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION) or "")
