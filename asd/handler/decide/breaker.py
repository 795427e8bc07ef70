"""The circuit breaker: after so many isolations something else is wrong, and nobody is isolated any more.

A wrong threshold or a bad release of the software makes every device look guilty. The breaker opens when one device
more than allowed were to be taken out. Then everything is only reported until it is reset by hand or its window has
passed; what happened before that is no reason to act any more.
"""

from __future__ import annotations

from asd.handler.db.store import Store
from asd.handler.policy import Policy

__all__ = ["Breaker", "reset_breaker"]


class Breaker:
    """Counts isolations. Used within a transaction."""

    def __init__(self, store: Store, policy: Policy) -> None:
        self._store = store
        self._policy = policy

    def opened(self) -> float:
        """When it opened, in seconds since the epoch; 0 while it is closed."""
        return self._store.number("breaker_opened")

    def refresh(self, now: float) -> bool:
        """Closes it when its window has passed; returns whether it was closed by that."""
        opened = self.opened()
        if opened > now:  # the clock was set back
            self._store.set_meta("breaker_opened", now)
        if not opened or now < opened + self._policy.breaker_seconds:
            return False
        reset_breaker(self._store, opened + self._policy.breaker_seconds)
        return True

    def isolations(self, now: float) -> int:
        """How many isolations are counted against the limit at `now`."""
        since = max(now - self._policy.breaker_seconds, min(self._store.number("breaker_reset"), now))
        row = self._store.db.execute(
            "SELECT count(*) FROM cases WHERE opened > ? AND state NOT IN ('others', 'failed', 'dropped')", (since,)
        ).fetchone()
        return int(row[0])

    def refusal(self, now: float, known: int) -> str:
        """Why no further device may be taken out now; empty when it may. Opens the breaker where it is the first."""
        count, allowed = self.isolations(now), self._policy.allowed(known)
        if not self.opened():
            if count < allowed:
                return ""
            self._store.set_meta("breaker_opened", now)
        hours = self._policy.breaker_seconds / 3600
        return (
            f"the circuit breaker is open: {count} devices were taken out within {hours:g} h, and {allowed} are allowed"
        )


def reset_breaker(store: Store, now: float) -> bool:
    """Closes the breaker; what happened before `now` is no reason to act any more. Returns whether it was open.

    Used within a transaction.
    """
    was_open = bool(store.number("breaker_opened"))
    store.set_meta("breaker_opened", 0.0)
    store.set_meta("breaker_reset", now)
    store.set_meta("ignore_before", max(store.number("ignore_before"), now))
    return was_open
