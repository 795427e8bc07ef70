"""From one event to one decision: the rules, without any scheduler.

The strike book takes an event in and finds what it shows, see `asd.handler.decide.strikes`. From that and the device's
case follows one decision, in this order; all of it is written with the transaction that took the event in.

| event | what follows |
|---|---|
| known, or of no importance | noted |
| software or data | no device is isolated; one isolated for these strikes alone is released |
| a passed stress test | noted; a device that others isolated is not isolated again once they release it |
| a fault that is too old | recorded |
| a fault of a device that is out, or about to be | merged into its case |
| the same value in another attempt, by the same device alone, under another rank | the device is isolated now |
| replay: persistent; stress test: computed wrongly | the device is isolated now |
| first-level anomaly; replay: transient | enough strikes isolate the device |
"""

import math
from collections.abc import Callable, Collection
from typing import Any

from asd.errors import how_many
from asd.event import Event
from asd.handler.db.cases import Case, Cases, Cause, Ending
from asd.handler.db.store import Store
from asd.handler.decide.breaker import Breaker
from asd.handler.decide.incidents import StrikeCount, incidents
from asd.handler.decide.strikes import Counted, EventReport, Finding, Strikes
from asd.handler.model.decision import ACTIONS, Decision
from asd.handler.model.identity import names_device
from asd.handler.model.policy import BREAKER_SECONDS, Policy
from asd.isolator import Device
from asd.verdict import Level

_COUNTED = {"replay", "isolation", "recovery", "stress"}
_SOFTWARE: dict[Finding, str] = {
    "software": "the replay of step {event.step} of {event.run} found software or data: {more} of this step revoked, "
    "no device is isolated for it",
    "repeated": "{counted.of} had the very same value at {event.checkpoint} in step {event.step} in another attempt: "
    "software or data, the strikes of this step are revoked and no device is isolated for them",
    "burst": "{counted.many} devices of {counted.of} raised within {span:g} s: software or data, their strikes are "
    "revoked and no device is isolated for them unless a replay finds hardware",
    "withheld": "{counted.many} nodes report the same of {counted.of}, whose nodes are unknown: their strikes are "
    "withheld and no device is isolated for them unless a replay finds hardware",
}
"""Findings that software or data is the cause, each with its reason."""


class Triage:
    """Triage of events, for the isolator named `engine`. Used within a transaction.

    `whole_nodes` is for an isolator that isolates the node of a device.
    """

    def __init__(
        self,
        store: Store,
        policy: Policy,
        engine: str,
        hosts_of: Callable[[str], Collection[str]] | None = None,
        *,
        whole_nodes: bool = False,
    ) -> None:
        self.strikes, self.cases = Strikes(store, policy, hosts_of), Cases(store)
        self.breaker = Breaker(store, policy)
        self._store, self._policy = store, policy
        self._engine, self._whole_nodes = engine, whole_nodes

    def take_in(self, event: Event, now: float) -> Decision:
        """Decides what follows from `event`, which may come any number of times."""
        counts = event.kind in _COUNTED or (event.kind == "anomaly" and event.level is Level.ERROR)
        if not counts or not math.isfinite(event.time):  # however often it comes
            return self._say("noted", event, now)
        query = "INSERT OR IGNORE INTO seen (id, received) VALUES (?, ?)"
        if not self._store.db.execute(query, (bytes.fromhex(event.id), now)).rowcount:
            return self._say("duplicate", event, now)
        try:
            report = self.strikes.read(event, now)
            counted = self.strikes.count(report)
        except (OverflowError, ValueError):
            return self._say("noted", event, now)
        event = report.event
        for device in set(counted.revoked):
            self._acquit(device, now)
        if counted.finding in _SOFTWARE:
            span, more = self._policy.burst_seconds, how_many(len(counted.revoked), "more strike")
            why = _SOFTWARE[counted.finding].format(event=event, counted=counted, span=span, more=more)
            return self._say("software", event, now, why)
        is_passed = event.kind == "stress" and not event.verdict and bool(report.device)
        if not is_passed and counted.finding not in ("strike", "moved"):
            return self._say("noted", event, now)
        case = self.cases.last(report.device)
        return self._passed(case, event, now) if is_passed else self._fault(report, counted, case, now)

    def _fault(self, report: EventReport, counted: Counted, case: Case | None, now: float) -> Decision:
        """Decides about a fault of a device that is not known to be software or data; `case` is its last one."""
        event, device, is_anomaly = report.event, report.device, report.event.kind == "anomaly"
        released = case.closed or 0.0 if case is not None and case.state == "released" else 0.0
        is_cleared = not is_anomaly and event.time <= max(report.cleared, released)
        if counted.finding != "moved" and (is_cleared or self.strikes.is_stale(event, now)):
            found = "it is" if is_anomaly else f"its verdict {event.verdict} is"
            return self._say("stale", event, now, f"{found} too old to act on; it is only recorded")
        if case is not None and case.closed is None:
            return self._merged(case, event, now)
        cause, why = _cause(event, counted)
        if cause != "strikes":
            return self._isolate(device, event, event.to_json(), cause, why, now)
        if is_anomaly and not counted.new:  # neither are there more strikes than before
            return self._say("strike", event, now)
        out, count = self._strike_out(device, now)
        if out is not None:
            return out
        if not count.is_enough(self._policy.strikes, waiting=True):
            return self._say("strike", event, now)
        more = count.score + count.waiting  # above the strikes where there are earlier ones
        has = how_many(count.strikes, "strike") + f" of {self._policy.strikes}"
        has += f", {more:.2f} with earlier ones" if more > count.strikes + 0.005 else ""
        unless = f"many devices of job {report.job} raise within {self._policy.settle_seconds:g} s"
        return self._say("waiting", event, now, f"it has {has}, and is isolated unless {unless}")

    def settle(self, now: float, *, waits: bool = True) -> list[Decision]:
        """Lets the strikes count that have waited long enough, or all, and isolates devices that have enough."""
        due = self.strikes.settle(now if waits else math.inf)
        found = [self._strike_out(device, now)[0] for device in due]
        return [decision for decision in found if decision is not None]

    def _strike_out(self, device: int, now: float) -> tuple[Decision | None, StrikeCount]:
        """Isolates `device` if enough of its strikes count; the decision is None when they do not."""
        policy, standing = self._policy, self.strikes.standing(device)
        # A clock that is hours behind ours makes no strike older than the others of this device.
        count = self.strikes.of(standing, min(now, max((each.time for each in standing), default=now)))
        if not count.is_enough(policy.strikes) or self.cases.open_case(device) is not None:
            return None, count
        found = [each for incident in incidents(each for each in standing if each.counts) for each in incident.strikes]
        last = max(found, key=lambda strike: (strike.time, strike.n), default=None)
        if last is None or self.strikes.is_stale(event := Event.from_json(text := self.strikes.event(last.n)), now):
            return None, count
        why = f"it has {how_many(policy.strikes, 'strike')} within {policy.window_seconds / 60:g} minutes"
        if count.counting < policy.strikes:
            why = f"its strikes of the last months come to {count.score:.2f} of {policy.strikes}"
        rules = {strike.rule: strike.checkpoint for strike in found}
        why += f": {', '.join(f'{rule} at {place}' for rule, place in rules.items())}" if len(rules) > 1 else ""
        return self._isolate(device, event, text, "strikes", why, now), count

    def _passed(self, case: Case | None, event: Event, now: float) -> Decision:
        """Records a passed stress test: a device isolated by others is not isolated again once they release it."""
        case = None if case is None or case.closed is not None else case
        if case is not None and case.state == "others" and event.time > case.last_fault:
            self.cases.move(case.n, "drop", now, ending="passed", why_released="it passed a stress test")
            case = None
        stays = f", but it stays isolated: its case is {case.state}" if case is not None else ""
        why = f"it passed a stress test; its strikes stay{stays}"
        return self._say("passed", event, now, why, case=case.n if case is not None else 0)

    def _merged(self, case: Case, event: Event, now: float) -> Decision:
        """Takes in a fault of a device that is isolated already, or about to be."""
        change: dict[str, Any] = {"last_fault": now, "wants_test": False, "host_since": 0.0}
        if event.verdict == "persistent":
            change["verdict"] = event.verdict
        if case.state == "releasing" and case.ending != "person":  # the handler itself was about to release it
            self.cases.move(case.n, "fault", now, ending="", why_released="", attempts=0, next_try=0.0, **change)
        else:
            self.cases.change(case.n, **change)
        return self._say("merged", event, now, case=case.n)

    def _isolate(self, device: int, event: Event, text: str, cause: Cause, why: str, now: float) -> Decision:
        """Opens a case for a device without one, where the circuit breaker lets us."""
        here, refusal = self.breaker.refusal(now, event.host, whole_nodes=self._whole_nodes)
        if refusal:
            return self._say("breaker", event, now, f"{why}, but {refusal}, so it is only reported")
        if here >= self._policy.max_devices:
            bad = f"within {BREAKER_SECONDS / 3600:g} h: the whole node is bad"
            why += f"; it is device {here + 1} of {event.host} {bad}"
        dry = self._policy.dry_run
        what = {"cause": cause, "reason": why, "verdict": event.verdict, "event": text, "event_id": event.id}
        state, times = "dry" if dry else "isolating", {"opened": now, "last_fault": now}
        case = self.cases.insert(device=device, state=state, isolator=self._engine, **what, **times)
        then = "it would be isolated (dry run)" if dry else f"the isolator {self._engine} isolates it"
        action = "would-isolate" if dry else "isolating"
        return self._say(action, event, now, f"{why}, so {then}", device=case.named, case=case.n)

    def _acquit(self, device: int, now: float) -> None:
        """Releases a device isolated for strikes alone that has too few by now, as other events came late."""
        case = self.cases.open_case(device)
        if case is None or case.cause != "strikes" or case.state not in ("dry", "isolating", "isolated"):
            return
        if len(incidents(each for each in self.strikes.standing(device) if each.counts)) < self._policy.strikes:
            self._release(case, "acquitted", "its strikes turned out to be software or data", now)

    def quiet(self, now: float) -> list[Decision]:
        """Decides what follows from a time without a fault: a release, or a stress test before it.

        An isolated device computes nothing, so that its silence alone shows little.
        """
        policy, decisions = self._policy, []
        for case in self.cases.in_state("dry" if policy.dry_run else "isolated"):
            silence = now - case.last_fault
            why = f"it had no fault for {silence / 3600:g} h"
            is_quiet = bool(policy.release_after_seconds) and silence >= policy.release_after_seconds
            if case.isolator != self._engine or now < case.next_try or not (is_quiet or case.wants_test):
                continue
            if self._store.has("device WHERE n = ? AND sound AND tested > ?", case.device, case.last_fault):
                decisions.append(self._release(case, "quiet", why, now))
            elif not case.wants_test:
                self.cases.change(case.n, wants_test=True)
                test = f"{why}; it is released after it passes `asd selftest --seconds 60 --run-dir D`"
                decisions.append(self._tell("test-wanted", test, case, now))
        return decisions

    def _release(self, case: Case, ending: Ending, why: str, now: float) -> Decision:
        self.cases.move(case.n, "release", now, ending=ending, why_released=why, attempts=0, next_try=0.0)
        if case.state == "dry":
            return self._tell("released", f"{why}, so it would be released (dry run)", case, now)
        return self._tell("releasing", f"{why}, so it is to be released", case, now)

    def _tell(self, action: str, why: str, case: Case, now: float) -> Decision:
        return Decision(action=action, reason=f"{case.named}: {why}.", time=now, device=case.named, case=case.n)

    def _say(
        self, action: str, event: Event, now: float, why: str = "", *, device: Device | None = None, case: int = 0
    ) -> Decision:
        if device is None and names_device(event):
            device = Device(event.host, event.device, event.rank)
        subject = f"{device}" if device is not None else f"event {event.id}"
        reason = f"{subject}: {why or ACTIONS[action]}."
        return Decision(action=action, reason=reason, time=now, device=device, event_id=event.id, case=case)


def _cause(event: Event, counted: Counted) -> tuple[Cause, str]:
    """Returns the cause to isolate a device at once, and why; strikes where these are to be counted."""
    if counted.finding == "moved":
        found = f"{event.checkpoint} had the very same value in step {event.step}"
        return "moved", f"{found} when it was rank {counted.many}"
    if event.kind == "stress":
        return "stress", "it computed wrongly in a stress test"
    if event.verdict == "persistent":
        where = f"step {event.step} of {event.run}" if event.step else event.run
        return "replay", f"the replay of {where} found persistent hardware"
    return "strikes", ""
