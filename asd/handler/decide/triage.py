"""From one event to one decision: the rules, without any scheduler.

For the effect of an event on the strikes see `asd.handler.decide.strikes`. Its effect on the device:

| event | what follows |
|---|---|
| first-level anomaly | enough strikes isolate the device |
| the same value in another attempt, by the same device alone, under another rank | the device is isolated now |
| replay: persistent | the device is isolated now |
| replay: transient | enough strikes isolate the device |
| stress test: computed wrongly | the device is isolated now |
| everything else | noted; a device that is isolated stays isolated |

The strike book takes an event in, a ruling is made of what it says and of the device's case, and one change of the case
follows from that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from asd.event import Event
from asd.handler.db.cases import Case, Cases, Cause, Ending
from asd.handler.db.store import Store
from asd.handler.decide.breaker import Breaker
from asd.handler.decide.incidents import StrikeCount
from asd.handler.decide.strikes import Counted, Strikes, prepared
from asd.handler.model.decision import ACTIONS, Decision
from asd.handler.model.identity import job_of, names_device
from asd.handler.model.policy import BREAKER_SECONDS, Policy
from asd.isolator import Device
from asd.verdict import Level

_COUNTED = {"replay", "isolation", "recovery", "stress"}


class Ruling(NamedTuple):
    """Decision that follows from an event."""

    action: str  # one of `asd.handler.model.decision.ACTIONS`; empty where the device is to be isolated
    why: str = ""  # reason in words; empty for the default ones of the action
    cause: Cause | None = None  # cause to isolate the device, or one more fault of an isolated one
    counts: bool = False  # whether a strike was added, so that there may be enough


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
        self.strikes = Strikes(store, policy, hosts_of)
        self.cases = Cases(store)
        self.breaker = Breaker(store, policy)
        self._store = store
        self._policy = policy
        self._engine = engine
        self._whole_nodes = whole_nodes
        self._id = ""

    def take_in(self, event: Event, now: float) -> Decision:
        """Decides what follows from `event`, which may come any number of times."""
        self._id = event.id  # a hash, and asked for more than once
        counts = event.kind in _COUNTED or (event.kind == "anomaly" and event.level is Level.ERROR)
        if not counts or not math.isfinite(event.time):  # however often it comes
            return self._say("noted", event, now)
        query = "INSERT OR IGNORE INTO seen (id, received) VALUES (?, ?)"
        if not self._store.db.execute(query, (bytes.fromhex(self._id), now)).rowcount:
            return self._say("duplicate", event, now)
        try:
            event = prepared(event)
            counted = self.strikes.count(event, now)
        except (OverflowError, ValueError):
            return self._say("noted", event, now)
        self._acquit(set(counted.revoked), now)
        case = self.cases.open_case(counted.device) if counted.device else None
        if event.kind == "stress" and not event.verdict and counted.device:
            return self._passed(case, event, now)
        return self._carry(self._rule(event, counted, now), event, counted.device, case, now)

    def _rule(self, event: Event, counted: Counted, now: float) -> Ruling:
        if event.kind == "anomaly":
            return self._of_anomaly(event, counted, now)
        if event.kind == "replay" and event.verdict == "software":
            more = _count(len(counted.revoked), "more strike")
            found = f"the replay of step {event.step} of {event.run} found software or data"
            return Ruling("software", f"{found}: {more} of this step revoked, nobody is isolated for it")
        if event.verdict not in ("transient", "persistent") or event.kind not in ("replay", "stress"):
            return Ruling("noted")
        if not counted.device:
            return Ruling("noted")
        if self.strikes.is_stale(event, now) or self._is_cleared(counted.device, event):
            return Ruling("stale", f"its verdict {event.verdict} is too old to be a reason to act")
        if event.kind == "stress":
            return Ruling("", "it computed wrongly in a stress test", "stress")
        if event.verdict == "transient":
            return Ruling("strike", cause="strikes", counts=True)
        where = f"step {event.step} of {event.run}" if event.step else event.run
        return Ruling("", f"the replay of {where} found persistent hardware", "replay")

    def _of_anomaly(self, event: Event, counted: Counted, now: float) -> Ruling:
        job = job_of(event.run)
        if counted.moved is not None:
            before = f"when it was rank {counted.moved}"
            return Ruling("", f"{event.checkpoint} had the very same value in step {event.step} {before}", "moved")
        if counted.repeated:
            return Ruling(
                "software",
                f"job {job} had the very same value at {event.checkpoint} in step {event.step} in another attempt: "
                "software or data, the strikes of this step are revoked and nobody is isolated for them",
            )
        if counted.burst:
            return Ruling(
                "software",
                f"{counted.burst} devices of {counted.of} raised within {self._policy.burst_seconds:g} s: software or "
                "data, their strikes are revoked and nobody is isolated for them unless a replay finds hardware",
            )
        if counted.software or not counted.device:
            return Ruling("noted")
        if self.strikes.is_stale(event, now):
            return Ruling("stale", "it is too old to be a reason to act, it is only recorded")
        return Ruling("strike", cause="strikes", counts=counted.new)

    def _carry(self, ruling: Ruling, event: Event, device: int, case: Case | None, now: float) -> Decision:
        """Makes the one change that follows from a ruling, and returns the decision."""
        if ruling.cause is None:
            return self._say(ruling.action, event, now, ruling.why)
        if case is not None:
            return self._merged(case, event, now)
        if not ruling.action:
            return self._isolate(device, event, event.to_json(), ruling, now)
        if not ruling.counts:  # and neither are there more strikes than before
            return self._say(ruling.action, event, now)
        policy, count = self._policy, self._of(device, now)
        out = self.strike_out(device, now, count)
        if out is not None:
            return out
        if not count.is_enough(policy.strikes, waiting=True):
            return self._say("strike", event, now)
        return self._say(
            "waiting",
            event,
            now,
            f"it has {_count(count.strikes, 'strike')} of {policy.strikes}{_with(count)}, and is isolated unless "
            f"many devices of job {job_of(event.run)} raise within {policy.settle_seconds:g} s",
        )

    def strike_out(self, device: int, now: float, count: StrikeCount | None = None) -> Decision | None:
        """Isolates `device` if enough of its strikes count; None when they do not."""
        count = count or self._of(device, now)
        if not count.is_enough(self._policy.strikes) or self.cases.open_case(device) is not None:
            return None
        strikes = [strike for incident in self.strikes.counting(device) for strike in incident.strikes]
        if not strikes:
            return None
        text = self.strikes.event(max(strikes, key=lambda strike: (strike.time, strike.n)).n)
        event = Event.from_json(text)
        if self.strikes.is_stale(event, now):
            return None
        self._id = event.id
        why = f"it has {_count(self._policy.strikes, 'strike')} within {self._policy.window_seconds / 60:g} minutes"
        if count.counting < self._policy.strikes:
            why = f"its strikes of the last months come to {count.score:.2f} of {self._policy.strikes}"
        found = {strike.rule: strike.checkpoint for strike in strikes}
        why += f": {', '.join(f'{rule} at {place}' for rule, place in found.items())}" if len(found) > 1 else ""
        return self._isolate(device, event, text, Ruling("", why, "strikes"), now)

    def _of(self, device: int, now: float) -> StrikeCount:
        return self.strikes.of(device, self.strikes.now_there(device, now))

    def _passed(self, case: Case | None, event: Event, now: float) -> Decision:
        """Records a passed stress test: a device isolated by others is not isolated again once they release it."""
        if case is not None and case.state == "others" and event.time > case.last_fault:
            self.cases.move(case.n, "drop", now, ending="passed", why_released="it passed a stress test")
            case = None
        stays = f", but it stays out: its case is {case.state}" if case is not None else ""
        why = f"it made no mistake in a stress test, its strikes stay{stays}"
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

    def _isolate(self, device: int, event: Event, text: str, ruling: Ruling, now: float) -> Decision:
        """Opens a case for a device without one, where the circuit breaker lets us."""
        refusal = self.breaker.refusal(now, event.host, whole_nodes=self._whole_nodes)
        if refusal:
            return self._say("breaker", event, now, f"{ruling.why}, but {refusal}, so it is only reported")
        count, why = self.breaker.isolated(now).get(event.host, 0) + 1, ruling.why
        if count > self._policy.max_devices:
            why += f"; it is device {count} of {event.host} within {BREAKER_SECONDS / 3600:g} h: the whole node is bad"
        dry = self._policy.dry_run
        case = self.cases.insert(
            device=device,
            state="dry" if dry else "isolating",
            opened=now,
            cause=ruling.cause,
            reason=why,
            verdict=event.verdict,
            event=text,
            event_id=self._id,
            last_fault=now,
            isolator=self._engine,
        )
        then = "it would be isolated, were this no dry run" if dry else f"the isolator {self._engine} is to isolate it"
        action, named = "would-isolate" if dry else "isolating", self.strikes.hardware.named(device)
        return self._say(action, event, now, f"{why}, so {then}", device=named, case=case.n)

    def _acquit(self, devices: Collection[int], now: float) -> None:
        """Releases devices isolated for strikes alone that have too few by now, as other events came late."""
        for device in devices:
            case = self.cases.open_case(device)
            if case is None or case.cause != "strikes" or case.state not in ("dry", "isolating", "isolated"):
                continue
            if len(self.strikes.counting(device)) < self._policy.strikes:
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
            if self.cases.passed_a_test(case):
                decisions.append(self._release(case, "quiet", why, now))
            elif not case.wants_test:
                self.cases.change(case.n, wants_test=True)
                test = f"{why}; it is given back once it passes `asd selftest --seconds 60 --run-dir D`"
                decisions.append(self._tell("test-wanted", test, case, now))
        return decisions

    def _release(self, case: Case, ending: Ending, why: str, now: float) -> Decision:
        self.cases.move(case.n, "release", now, ending=ending, why_released=why, attempts=0, next_try=0.0)
        if case.state == "dry":
            return self._tell("released", f"{why}, so it would be released, were this no dry run", case, now)
        return self._tell("releasing", f"{why}, so it is to be released", case, now)

    def _tell(self, action: str, why: str, case: Case, now: float) -> Decision:
        device = self.strikes.hardware.named(case.device)
        return Decision(action=action, reason=f"{device}: {why}.", time=now, device=device, case=case.n)

    def _is_cleared(self, device: int, event: Event) -> bool:
        """Returns whether the event is from before the device was cleared, or released by anybody."""
        row = self._store.db.execute("SELECT cleared FROM device WHERE n = ?", (device,)).fetchone()
        last = self.cases.last(device)
        given_back = last.closed if last is not None and last.state == "released" else None
        return bool(event.time <= max(row[0], given_back or 0.0))

    def _say(
        self, action: str, event: Event, now: float, why: str = "", *, device: Device | None = None, case: int = 0
    ) -> Decision:
        if device is None and names_device(event):
            device = Device(event.host, event.device, event.rank)
        subject = f"{device}" if device is not None else f"event {self._id}"
        return Decision(
            action=action,
            reason=f"{subject}: {why or ACTIONS[action]}.",
            time=now,
            device=device,
            event_id=self._id,
            case=case,
        )


def _with(count: StrikeCount) -> str:
    """Returns the score in words, where earlier strikes raise it above the strikes; else an empty text."""
    more = count.score + count.waiting
    return f", {more:.2f} with earlier ones" if more > count.strikes + 0.005 else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
