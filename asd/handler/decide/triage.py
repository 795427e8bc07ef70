"""From one event to one decision: the rules, without any engine.

What an event does to the strikes, `asd.handler.decide.strikes` says. What follows for the device, this says:

| event | what follows |
|---|---|
| first-level anomaly | enough strikes take the device out |
| the same value in another attempt, by the same device alone, under another rank | the device is taken out now |
| replay: persistent | the device is taken out now |
| replay: transient | enough strikes take the device out |
| stress test: computed wrongly | the device is taken out now |
| everything else | noted; a device that is out stays out |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

from asd.event import Event
from asd.handler.db.cases import BY_HAND, NO_FAULT, REVOKED, TEST_WANTED, Case, Cases
from asd.handler.db.store import Store
from asd.handler.decide.breaker import Breaker
from asd.handler.decide.strikes import StrikeCount, Strikes, prepared
from asd.handler.decision import ACTIONS, Decision
from asd.handler.identity import job_of, names_device
from asd.handler.policy import BREAKER_SECONDS, Policy
from asd.isolator import Device
from asd.verdict import Level

_BY_STRIKES = ("it has ", "its strikes of ")  # begins the reason of a case that strikes have led to
_OUT = ("dry", "isolating", "isolated")
_COUNTED = {"replay", "isolation", "recovery", "stress"}


class Triage:
    """Takes in events. Used within a transaction.

    Args:
        store: What is known.
        policy: The numbers.
        engine: Name of the isolator.
        hosts_of: On which hosts a job runs, by who knows.
        whole_nodes: Whether the isolator isolates the node of a device.
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
        """What follows from `event`, which may come any number of times."""
        self._id = event.id  # a hash, and asked for more than once
        counts = event.kind in _COUNTED or (event.kind == "anomaly" and event.level is Level.ERROR)
        if not counts or not math.isfinite(event.time):  # however often it comes
            return self._say("noted", event, now)
        new = self._store.db.execute(
            "INSERT OR IGNORE INTO seen (id, received) VALUES (?, ?)", (bytes.fromhex(self._id), now)
        ).rowcount
        if not new:
            return self._say("duplicate", event, now)
        try:
            return self._follow_from(prepared(event), now)
        except (OverflowError, ValueError):
            return self._say("noted", event, now)

    def _follow_from(self, event: Event, now: float) -> Decision:
        if event.kind == "anomaly":
            return self._anomaly(event, now)
        if event.kind == "replay" and event.verdict:
            return self._replay(event, now)
        if event.kind == "stress":
            return self._stress(event, now)
        self.strikes.count(event, now)
        return self._say("noted", event, now)

    def strike_out(self, device: int, now: float, count: StrikeCount | None = None) -> Decision | None:
        """Takes `device` out if enough of its strikes count; None when they do not."""
        count = count or self.strikes.of(device, self.strikes.now_there(device, now))
        causes = self.strikes.counting(device) if count.is_enough(self._policy.strikes) else []
        if not causes or self.strikes.is_stale(causes[0], now) or self.cases.open_case(device) is not None:
            return None
        self._id = causes[0].id
        why = f"it has {_count(self._policy.strikes, 'strike')} within {self._policy.window_seconds / 60:g} minutes"
        if count.counting < self._policy.strikes:
            why = f"its strikes of the last months come to {count.score:.2f} of {self._policy.strikes}"
        found = {cause.rule: cause.checkpoint for cause in causes[::-1]}
        why += f": {', '.join(f'{rule} at {place}' for rule, place in found.items())}" if len(found) > 1 else ""
        return self._take_out(device, causes[0], why, now)

    def _anomaly(self, event: Event, now: float) -> Decision:
        counted, job = self.strikes.count(event, now), job_of(event.run)
        self._acquit(counted.revoked, now)
        device = counted.device
        if counted.moved is not None:
            why = f"{event.checkpoint} had the very same value in step {event.step} when it was rank {counted.moved}"
            return self._merged(device, event, now) or self._take_out(device, event, why, now)
        if counted.repeated:
            return self._say(
                "software",
                event,
                now,
                f"job {job} had the very same value at {event.checkpoint} in step {event.step} in another attempt: "
                "software or data, the strikes of this step are revoked and nobody is isolated for them",
            )
        if counted.burst:
            return self._say(
                "software",
                event,
                now,
                f"{counted.burst} devices of {counted.of} raised within {self._policy.burst_seconds:g} s: software or "
                "data, their strikes are revoked and nobody is isolated for them unless a replay finds hardware",
            )
        if counted.software or not device:
            return self._say("noted", event, now)
        if self.strikes.is_stale(event, now):
            return self._say("stale", event, now, "it is too old to be a reason to act, it is only recorded")
        return self._merged(device, event, now) or self._count(device, event, now, new=counted.new)

    def _count(self, device: int, event: Event, now: float, *, new: bool) -> Decision:
        """What the strikes of a device come to, now that there is this one."""
        if not new:  # and neither are there more strikes than before
            return self._say("strike", event, now)
        policy = self._policy
        count = self.strikes.of(device, self.strikes.now_there(device, now))
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

    def _replay(self, event: Event, now: float) -> Decision:
        counted, verdict = self.strikes.count(event, now), event.verdict
        self._acquit(counted.revoked, now)
        if verdict == "software":
            return self._say(
                "software",
                event,
                now,
                f"the replay of step {event.step} of {event.run} found software or data: "
                f"{_count(len(counted.revoked), 'more strike')} of this step revoked, nobody is isolated for it",
            )
        device = counted.device
        if not device or verdict == "undetermined":
            return self._say("noted", event, now)
        if verdict == "transient":
            return (
                self._too_old(device, event, now)
                or self._merged(device, event, now)
                or self._count(device, event, now, new=True)
            )
        where = f"step {event.step} of {event.run}" if event.step else event.run
        return self._convict(device, event, f"the replay of {where} found persistent hardware", now)

    def _stress(self, event: Event, now: float) -> Decision:
        device = self.strikes.count(event, now).device
        if not device:
            return self._say("noted", event, now)
        self._store.db.execute(
            "UPDATE device SET tested = :time, sound = :sound WHERE n = :device AND tested <= :time",
            {"time": event.time, "sound": not event.verdict, "device": device},
        )
        if event.verdict:
            return self._convict(device, event, "it computed wrongly in a stress test", now)
        case = self.cases.open_case(device)
        if case is not None and case.state == "others" and event.time > case.last_fault:
            self.cases.change(case.n, state="dropped", closed=now, why_released="it passed a stress test")
            case = None
        stays = f", but it stays out: its case is {case.state}" if case is not None else ""
        return self._say(
            "passed",
            event,
            now,
            f"it made no mistake in a stress test, its strikes stay{stays}",
            case=case.n if case is not None else 0,
        )

    def _convict(self, device: int, event: Event, why: str, now: float) -> Decision:
        """What follows from proof that the hardware is broken."""
        return (
            self._too_old(device, event, now)
            or self._merged(device, event, now)
            or self._take_out(device, event, why, now)
        )

    def _too_old(self, device: int, event: Event, now: float) -> Decision | None:
        if not self.strikes.is_stale(event, now) and not self._is_cleared(device, event):
            return None
        return self._say("stale", event, now, f"its verdict {event.verdict} is too old to be a reason to act")

    def _merged(self, device: int, event: Event, now: float) -> Decision | None:
        """The decision about a device that is out already, or about to be; None for another."""
        case = self.cases.open_case(device)
        if case is None:
            return None
        change: dict[str, Any] = {"last_fault": now, "reason": case.reason.removesuffix(TEST_WANTED), "host_since": 0.0}
        if event.verdict == "persistent":
            change["verdict"] = event.verdict
        if case.state == "releasing" and case.why_released != BY_HAND:  # it was to be given back as it had no fault
            change |= {"state": "isolating", "why_released": "", "attempts": 0, "next_try": 0.0}
        self.cases.change(case.n, **change)
        return self._say("merged", event, now, case=case.n)

    def _take_out(self, device: int, event: Event, why: str, now: float) -> Decision:
        """Opens a case for a device without one, where the circuit breaker and the marks of others let us."""
        refusal = self.breaker.refusal(now, event.host, whole_nodes=self._whole_nodes)
        if refusal:
            return self._say("breaker", event, now, f"{why}, but {refusal}, so it is only reported")
        count = self.breaker.isolated(now).get(event.host, 0) + 1
        if count > self._policy.max_devices:
            why += f"; it is device {count} of {event.host} within {BREAKER_SECONDS / 3600:g} h: the whole node is bad"
        state, action = ("dry", "would-isolate") if self._policy.dry_run else ("isolating", "isolating")
        case = self.cases.insert(
            device=device,
            state=state,
            opened=now,
            reason=why,
            verdict=event.verdict,
            event=event.to_json(),
            last_fault=now,
            isolator=self._engine,
        )
        what = (
            "it would be isolated, were this no dry run"
            if state == "dry"
            else f"the isolator {self._engine} is to isolate it"
        )
        return self._say(
            action, event, now, f"{why}, so {what}", device=self.strikes.hardware.named(device), case=case.n
        )

    def _acquit(self, devices: Collection[int], now: float) -> None:
        """Gives back what is out for strikes alone, and has too few by now: others came late and showed what it was."""
        for device in set(devices):
            case = self.cases.open_case(device)
            if case is None or case.state not in _OUT or not case.reason.startswith(_BY_STRIKES):
                continue
            if len(self.strikes.counting(device)) < self._policy.strikes:
                self._give_back(case, REVOKED, now)

    def quiet(self, now: float) -> list[Decision]:
        """What follows from a time without a fault: devices are given back, or have to pass a stress test before.

        A device that is out computes nothing for anybody, so that its silence alone says little.
        """
        policy, decisions = self._policy, []
        for case in self.cases.in_state("dry" if policy.dry_run else "isolated"):
            silence, is_wanted = now - case.last_fault, case.reason.endswith(TEST_WANTED)
            why = f"{NO_FAULT} {silence / 3600:g} h"
            is_quiet = bool(policy.release_after_seconds) and silence >= policy.release_after_seconds
            if case.isolator != self._engine or now < case.next_try or not (is_quiet or is_wanted):
                continue
            if self.cases.passed_a_test(case):
                decisions.append(self._give_back(case, why, now))
            elif not is_wanted:
                decisions.append(self._want_test(case, why, now))
        return decisions

    def _give_back(self, case: Case, why: str, now: float) -> Decision:
        device = self.strikes.hardware.named(case.device)
        if case.state == "dry":
            self.cases.change(case.n, state="dropped", closed=now, why_released=why)
            action, then = "released", "it would be released, were this no dry run"
        else:
            self.cases.change(case.n, state="releasing", why_released=why, attempts=0, next_try=0.0)
            action, then = "releasing", "it is to be released"
        return Decision(action=action, reason=f"{device}: {why}, so {then}.", time=now, device=device, case=case.n)

    def _want_test(self, case: Case, why: str, now: float) -> Decision:
        self.cases.change(case.n, reason=case.reason + TEST_WANTED)
        device = self.strikes.hardware.named(case.device)
        reason = f"{device}: {why}; it is given back once it passes `asd selftest --seconds 60 --run-dir D`."
        return Decision(action="test-wanted", reason=reason, time=now, device=device, case=case.n)

    def _is_cleared(self, device: int, event: Event) -> bool:
        """Whether the event is from before the device was cleared, or given back by whomever."""
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
    """The score too, where earlier strikes make it more."""
    more = count.score + count.waiting
    return f", {more:.2f} with earlier ones" if more > count.strikes + 0.005 else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
