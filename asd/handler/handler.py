"""The fault handler: events in, isolations out."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from asd.errors import StateError
from asd.event import Event
from asd.handler.act.clock import mind_the_clock
from asd.handler.act.executor import RECONCILE_SECONDS, Executor
from asd.handler.act.succession import Leadership, adopt, passed_on, record_of
from asd.handler.db.fleet import Fleet, Used
from asd.handler.db.store import Store
from asd.handler.decide.triage import Triage
from asd.handler.device_record import policy_of
from asd.handler.model.decision import Decision
from asd.handler.model.identity import whole
from asd.handler.model.policy import SKEW_SECONDS, Policy
from asd.isolator import Device, Isolator

LED_BY = "led by"  # under this name the store keeps which other handler acts; empty or missing when this one does
_PRUNE_SECONDS = 300.0
_PRUNE_CHARACTERS = 64 << 20
_MOST_KEPT = 1000
_CLOSED = "The window of the circuit breaker has passed: it is closed; events that were only reported have no effect."


class FaultHandler:
    """Decides about devices, and has the isolator do it. Every method may be called from any thread.

    Events may come late, twice and in any order. What time makes due needs `tick` about once a second.

    Args:
        publish: Takes the events `isolation` and `recovery`; when it raises, it gets them again.
        already: Whether an event of this id was published before.
        from_beginning: Whether, in a new store, events from before now are reasons to act too.
        uptime: Which start of the machine this is and the seconds since, by which time is counted; None counts it by
            the clock, which may be set anew.
        leadership: Whether this handler is the one of several that acts, each with its store; None for a single one.
        hosts_of: Returns the hosts of a job, none where they are not known; None where every source is trusted.
    """

    def __init__(
        self,
        store: Store,
        policy: Policy,
        isolator: Isolator,
        publish: Callable[[Event], None],
        clock: Callable[[], float] = time.time,
        *,
        already: Callable[[str], bool] = lambda _id: False,
        from_beginning: bool = False,
        uptime: Callable[[], tuple[str, float]] | None = None,
        leadership: Leadership | None = None,
        hosts_of: Callable[[str], Collection[str]] | None = None,
    ) -> None:
        self.store, self.policy = store, policy
        self.backlog: list[Decision] = []  # decisions that no event of the moment led to; `tick` returns them
        self._clock, self._uptime, self._from_beginning = clock, uptime, from_beginning
        self._lock = threading.RLock()
        whole_nodes = getattr(isolator, "whole_nodes", False)
        self.triage = Triage(store, policy, isolator.name, hosts_of, whole_nodes=whole_nodes)
        self._leadership = leadership
        self._leads = leadership is None
        self._adopted = ""
        self.engine = Executor(store, policy, isolator, publish, already, lambda: self.acts)
        self._pruned = self._reconciled = clock()
        with store.guard():
            self._begin(self._reconciled)

    def handle(self, event: Event) -> Decision:
        """Takes in one event, acts where it must, and returns what was decided."""
        return self.handle_many([event])[0]

    def handle_many(self, events: Sequence[Event], cursor: dict[str, str] | None = None) -> list[Decision]:
        """Takes in all of the events, in the order of their logs, or none; returns one decision for each.

        What `cursor` has is kept in the same transaction, under the names given; `store.meta` returns it.
        """
        with self._lock, self.store.guard():
            now = self._clock()
            self._follow_leadership(now)
            with self.store.transaction():
                mind_the_clock(self.store, self._uptime, now)
                self.triage.breaker.refresh(now)
                decisions = [self.triage.take_in(event, now) for event in events]
                late = [] if self.policy.settle_seconds else self.triage.settle(now)
                for name, value in (cursor or {}).items():
                    self.store.set_meta(name, value)
            # Where no strike waits, those that settled at once are what their events led to.
            at_once = {each.event_id: each for each in late}
            found = [at_once.get(each.event_id, each) for each in decisions]
            outcome = {each.case: each for each in self._carry_out(now) if each.case}
            mine = {each.case for each in (*found, *late)}
            self._keep(each for each in outcome.values() if each.case not in mine)
            return [outcome.get(each.case, each) if each.action == "isolating" else each for each in found]

    def tick(self, now: float | None = None, *, waits: bool = True, settles: bool = True) -> list[Decision]:
        """Does the work that is due; returns the decisions.

        Strikes wait for others of their job, unless no more can come, and all of them while events are unread.
        """
        with self._lock, self.store.guard():
            now = self._clock() if now is None else now
            self._follow_leadership(now)
            decisions, self.backlog = self.backlog, []
            with self.store.transaction():
                mind_the_clock(self.store, self._uptime, now)
                if self.triage.breaker.refresh(now):
                    decisions.append(Decision(action="problem", time=now, reason=_CLOSED))
                decisions += self.triage.settle(now, waits=waits) if settles else []
                if self.acts:
                    decisions += self.triage.quiet(now)
                self._prune(now)
            self.engine.hurries = not waits
            acted = self._carry_out(now)
            if self._leadership is not None and self.acts:
                dry = self.policy.dry_run
                self._leadership.leave(passed_on(self._adopted, now) if dry else record_of(self.store, now))
            if self._may_ask():
                acted += self.engine.reconcile(now)
                self._send(now)
                if not 0 <= now - self._reconciled < RECONCILE_SECONDS:
                    self._reconciled = now
                    self.know_nodes("scheduler", self.engine.nodes())
            moved = {decision.case for decision in acted}
            return [each for each in decisions if not each.case or each.case not in moved] + acted

    @property
    def acts(self) -> bool:
        """True where it asks the scheduler; else another handler does, and this one only takes in events."""
        return self._leads and (self._leadership is None or self._leadership.acts)

    def know(self, devices: Iterable[Device]) -> None:
        """Notes which devices there are; the circuit breaker's percentage is one of their nodes."""
        nodes = set(self.triage.breaker.nodes.get("", ()))
        with self._lock, self.store.transaction():
            now = self._clock()
            for host, device, rank in devices:
                self.triage.strikes.hardware.number(whole(host), whole(device), rank, now)
                nodes.add(host)
        self.know_nodes("", nodes)

    def know_nodes(self, source: str, nodes: Collection[str]) -> None:
        """Notes the known nodes, by source."""
        found = frozenset(nodes)
        if found and found != self.triage.breaker.nodes.get(source):
            with self._lock, self.store.transaction():
                self.triage.breaker.know(source, found)

    def know_fleet(self, used: Mapping[str, Sequence[Used]], days: float) -> None:
        """Adds days to devices in training, by the node whose agent reports them."""
        with self._lock, self.store.transaction():
            for host, rows in used.items():
                Fleet(self.store).add(host, rows, days, self._clock())

    def close(self) -> None:
        """Lets another handler act; closes the store."""
        with self._lock:
            self.store.close()

    def _begin(self, now: float) -> None:
        in_use = self.store.take_lease()
        if in_use:
            raise StateError(in_use)
        with self.store.transaction():
            if not self.store.meta("ignore_before"):
                # The clocks of other hosts may be behind ours.
                self.store.set_meta("ignore_before", 0.0 if self._from_beginning else now - SKEW_SECONDS)
                self.store.set_meta("last_now", now)
            if policy_of(self.store).dry_run and not self.policy.dry_run:
                self.store.set_meta("breaker_opened", 0.0)
            self.store.set_meta("policy", msgspec.json.encode(self.policy).decode())  # for readers of the devices
            if self._leadership is None:
                self.store.set_meta(LED_BY, "")
            mind_the_clock(self.store, self._uptime, now)
            self._end_idle_cases(now)
            # The cause of the scheduler's refusal may be fixed: handlers are often restarted for that.
            self.store.db.execute("UPDATE cases SET next_try = 0 WHERE closed IS NULL")
        self._begin_acting(now)

    def _begin_acting(self, now: float) -> None:
        if not self._may_ask():
            return
        self.know_nodes("scheduler", self.engine.nodes())
        self._keep(self._carry_out(now))
        self._keep(self.engine.reconcile(now))
        self._send(now)

    def _may_ask(self) -> bool:
        """Returns whether the scheduler may be asked and events may be published now."""
        return self.acts and not self.policy.dry_run

    def _follow_leadership(self, now: float) -> None:
        """Adopts the state of the handler that acted before, and continues from there."""
        leadership = self._leadership
        if leadership is None or self._leads:
            return
        acts = leadership.acts  # before the record is looked at, which is the last one by then
        record = leadership.record
        if acts or record != self._adopted or self.store.meta(LED_BY) != leadership.holder:
            with self.store.transaction():
                if not self.policy.dry_run:  # which isolates nothing, so nothing is out by it
                    adopt(self.store, record, now)
                self.store.set_meta(LED_BY, "" if acts else leadership.holder)
            self._adopted = record
        if acts:
            self._leads = True
            self._begin_acting(now)

    def _carry_out(self, now: float) -> list[Decision]:
        if not self._may_ask():
            return []
        leadership = self._leadership
        # A successor must know each intention before it is carried out.
        if leadership is not None and self.engine.due(now) and not leadership.confirm(record_of(self.store, now)):
            return []
        decisions = self.engine.carry_out(now)
        self._send(now)
        return decisions

    def _send(self, now: float) -> None:
        problem = self.engine.publish(now)
        if problem is not None:
            self._keep([problem])

    def _keep(self, decisions: Iterable[Decision]) -> None:
        """Keeps decisions that no current event led to for the next `tick`."""
        self.backlog = [*self.backlog, *decisions][-_MOST_KEPT:]

    def _end_idle_cases(self, now: float) -> None:
        """Ends and reports cases of a dry run or of the isolator `none`: they must not isolate a device later."""
        if self.policy.dry_run:
            return
        cases, own = self.triage.cases, self.engine.name
        for case in cases.in_state("dry", "isolating", "isolated"):
            device = case.named
            if case.state == "dry" or (case.isolator == "none" and own != "none"):
                why = "the dry run has ended" if case.state == "dry" else "the isolator none isolated nothing"
                reason = f"{device}: {why}; test it, or isolate it by hand. Reason to isolate it: {case.reason}."
                case = cases.move(case.n, "free", now, ending="restart", why_released=why)
                if cases.was_told(case):
                    cases.tell(case, "recovery", reason, now)
                self.triage.strikes.hardware.clear(case.device, now)
                self._keep([Decision(action="released", reason=reason, time=now, device=device, case=case.n)])
            elif case.state == "isolated" and case.isolator != own:
                reason = f"{device} is isolated by the isolator {case.isolator}, and only that one can release it."
                self._keep([Decision(action="problem", reason=reason, time=now, device=device, case=case.n)])

    def _prune(self, now: float) -> None:
        strikes = self.triage.strikes
        if strikes.written >= _PRUNE_CHARACTERS or not 0 <= now - self._pruned < _PRUNE_SECONDS:
            self._pruned, strikes.written = now, 0
            self.store.prune(now - self.policy.memory_seconds, now - self.policy.strike_memory_seconds)
