"""The outbox: isolations and recoveries are published exactly once, however often the handler is killed."""

from __future__ import annotations

from collections.abc import Callable

from asd.event import Event
from asd.handler.db.isolations import Isolations
from asd.handler.db.store import Store
from asd.handler.decision import Decision

__all__ = ["Outbox"]


class Outbox:
    """Hands what the cases tell to whoever publishes it. Never used within a transaction.

    Args:
        store: Where it waits.
        cases: Of the same store.
        publish: Takes one event; when it raises, the event stays.
        already: Whether an event of this id was published before; a handler that was killed between publishing and
            noting it does not know.
    """

    def __init__(
        self, store: Store, cases: Isolations, publish: Callable[[Event], None], already: Callable[[str], bool]
    ) -> None:
        self._store = store
        self._cases = cases
        self._publish = publish
        self._already = already
        self._failing = False

    def recover(self, now: float) -> None:
        """Notes what a handler before this one has published without noting it."""
        for number, event in self._cases.unsent():
            if self._already(event.id):
                with self._store.transaction():
                    self._cases.mark_sent(number, now)

    def send(self, now: float) -> Decision | None:
        """Publishes what waits; returns what is to be told when that fails for the first time in a row."""
        for number, event in self._cases.unsent():
            try:
                self._publish(event)
            except Exception as error:  # a full disk, a dead socket
                return self._failed(event, error, now)
            self._failing = False
            with self._store.transaction():
                self._cases.mark_sent(number, now)
        return None

    def _failed(self, event: Event, error: Exception, now: float) -> Decision | None:
        if self._failing:
            return None
        self._failing = True
        reason = f"The event {event.id} ({event.kind}) can't be published: {error}; it is tried again."
        problem = Decision(action="problem", reason=reason, time=now, event_id=event.id)
        with self._store.transaction():
            self._store.remember(problem)
        return problem
