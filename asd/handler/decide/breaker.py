"""The circuit breaker: when devices of too many nodes look guilty, something else is wrong; it is only reported."""

from asd.handler.db.store import Store
from asd.handler.model.policy import BREAKER_SECONDS, Policy

_MOST_OF_NODE = 16  # devices of a node that is isolated as a whole: a job can make up any number


class Breaker:
    """Counts isolations. Used within a transaction."""

    def __init__(self, store: Store, policy: Policy) -> None:
        # names of the known nodes, by source: the nodes with faults do not show how many nodes there are
        self.nodes: dict[str, frozenset[str]] = {}
        self._store, self._policy = store, policy

    def know(self, source: str, nodes: frozenset[str]) -> None:
        """Notes which nodes `source` knows; their number outlives the handler."""
        self.nodes[source] = nodes
        self._store.set_meta("known_nodes", len(frozenset().union(*self.nodes.values())))

    def opened(self) -> float:
        """Returns the time it opened, in seconds since the epoch; 0 while it is closed."""
        return self._store.number("breaker_opened")

    def refresh(self, now: float) -> bool:
        """Closes it when its window has passed; returns whether it was closed by that."""
        opened = self.opened()
        if opened > now:  # the clock was set back
            self._store.set_meta("breaker_opened", now)
        if not opened or now < opened + BREAKER_SECONDS:
            return False
        reset_breaker(self._store, opened + BREAKER_SECONDS)
        return True

    def isolated(self, now: float) -> dict[str, int]:
        """Returns the number of devices isolated within the window, or about to be, by node."""
        since = max(now - BREAKER_SECONDS, min(self._store.number("breaker_reset"), now))
        counted = self._store.db.execute(
            "SELECT host, count(*) FROM cases JOIN device ON device.n = cases.device "
            "WHERE opened > ? AND cases.state NOT IN ('others', 'failed', 'dropped') GROUP BY host",
            (since,),
        )
        return dict(counted.fetchall())

    def refusal(self, now: float, host: str, *, whole_nodes: bool = False) -> tuple[int, str]:
        """Returns how many devices of `host` are isolated, and why no further one may be, or "". May open the breaker.

        With `whole_nodes`, for an engine that isolates nodes, a further device of one that is out adds nothing.
        """
        policy, known, out = self._policy, int(self._store.number("known_nodes")), self.isolated(now)
        hours, here, devices = BREAKER_SECONDS / 3600, out.get(host, 0), policy.max_devices
        nodes = policy.allowed(known) if policy.max_percent < 100 else max(known, len(out) + 1)
        too_many = here >= devices and not (whole_nodes and 0 < here < _MOST_OF_NODE)
        if not self.opened():
            if not too_many and (here or len(out) < nodes):
                return here, ""
            if too_many and known != 1:  # one node, however bad, is no evidence about the others
                return here, f"{here} devices of {host} were isolated within {hours:g} h, and {devices} are allowed"
            self._store.set_meta("breaker_opened", now)
        return here, (
            f"the circuit breaker is open: devices of {len(out)} nodes were isolated within {hours:g} h, {here} of "
            f"{host}; allowed are {nodes} nodes of the {known} known ones, {devices} devices of each"
        )


def reset_breaker(store: Store, now: float) -> bool:
    """Closes the breaker; events before `now` no longer count. Returns whether it was open.

    Used within a transaction.
    """
    was_open = bool(store.number("breaker_opened"))
    store.set_meta("breaker_opened", 0.0)
    store.set_meta("breaker_reset", now)
    store.set_meta("ignore_before", max(store.number("ignore_before"), now))
    return was_open
