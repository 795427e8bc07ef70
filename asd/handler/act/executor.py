"""Actions that the scheduler carries out and the handler publishes, exactly once, even if it is killed in between."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterator
from operator import attrgetter
from typing import Protocol, runtime_checkable

from asd.errors import IsolationError
from asd.event import Event
from asd.handler.db.cases import BY_HANDLER, Case, Cases
from asd.handler.db.store import Store
from asd.handler.decide.hardware import KnownDevices
from asd.handler.model.decision import Decision
from asd.handler.model.policy import Policy
from asd.isolator import Device, IsolationOwner, Isolator

_SLOW_SECONDS = 2.0  # after a longer request the scheduler has a rest of four times as long
_RETRIES = 5  # after so many failures it is reported
_OTHERS_SECONDS = 60.0  # between two looks whether somebody else still holds a device
RECONCILE_SECONDS = 600.0  # between two looks whether an isolated device still is


@runtime_checkable
class KnowsHosts(Protocol):
    """Isolator whose scheduler has creation times of hosts, so a replaced machine is noticed."""

    def host_since(self, device: Device) -> float | None:
        """Returns the time its host was made, in seconds since the epoch; None while the scheduler lacks that host."""


class NoIsolator:
    """Isolator without a scheduler: decisions are only recorded, and a device is ours according to the store."""

    name = "none"

    def __init__(self, store: Store) -> None:
        self._store = store

    def held(self, device: Device) -> IsolationOwner:
        """Returns `OURS` if the device has an open case that was carried out, else `FREE`."""
        out = "cases JOIN device ON device.n = cases.device WHERE host = ? AND name = ? AND closed IS NULL"
        ours = self._store.has(f"{out} AND state IN ('isolated', 'releasing')", *device[:2])
        return IsolationOwner.OURS if ours else IsolationOwner.FREE

    def isolate(self, device: Device, reason: str, event_id: str) -> None:
        """Does nothing."""

    def release(self, device: Device) -> None:
        """Does nothing."""


class Executor:
    """Executor of the cases. Never used within a transaction, as a scheduler may take its time.

    An event for which `publish` raises stays. `already` knows whether one of an id was published before, which a
    handler that was killed in between does not. Where `may_act` returns False, the rest of the cases waits.
    """

    def __init__(
        self,
        store: Store,
        policy: Policy,
        isolator: Isolator,
        publish: Callable[[Event], None],
        already: Callable[[str], bool],
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        self._store, self._policy, self._isolator = store, policy, isolator
        self._hardware, self._cases = KnownDevices(store), Cases(store)
        self._publish, self._already, self._may_act = publish, already, may_act
        self._publishing_fails = False
        self._rests_until: dict[str, float] = {}  # ends of rests, by state of the cases; `""` is for all states
        self.hurries = False  # whether a scheduler that answers, however slowly, is given no rests
        self._asked: dict[int, float] = {}  # when the scheduler was asked about an isolated device, by case
        self._looked: dict[int, float] = {}  # when it answered
        self.failed_tries = 0  # number of requests that the scheduler did not carry out

    @property
    def name(self) -> str:
        """Name of the scheduler's isolator."""
        return self._isolator.name

    def nodes(self) -> Collection[str]:
        """Returns the nodes of the scheduler; none where it does not answer."""
        try:
            return self._isolator.nodes()  # type: ignore[attr-defined, no-any-return]
        except Exception:  # it has no such method, or its scheduler does not answer
            return ()

    def carry_out(self, now: float, only: int = 0) -> list[Decision]:
        """Carries out due actions, of all cases or of one; returns one decision for each case that moved."""
        decisions, began = [], time.monotonic()
        for case in self.due(now):
            if not self._may_act() or (time.monotonic() - began > _SLOW_SECONDS and not self.hurries):
                break  # the next pass goes on, after events were read
            if only in (0, case.n) and not self._rests(case.state):
                decisions.append(self._do(case, now))
        return [each for each in decisions if each is not None]

    def due(self, now: float) -> list[Case]:
        """Returns the cases about which the scheduler must be asked now, the longest due first."""
        latest = now + self._policy.longest_pause_seconds  # after it: the clock was set back
        cases = self._cases.in_state("isolating", "others", "releasing")
        due = [case for case in cases if not now < case.next_try <= latest and not self._rests(case.state)]
        return sorted(due, key=attrgetter("next_try", "attempts"))

    def _rests(self, state: str) -> bool:
        """Returns true while a slow scheduler is left alone; where it answers, only looks at what is isolated wait."""
        states = ("", state) if state in ("others", "isolated") and not self.hurries else ("",)
        return time.monotonic() < max(self._rests_until.get(each, 0.0) for each in states)

    @contextlib.contextmanager
    def _answering(self, state: str) -> Iterator[None]:
        began, rests = time.monotonic(), state
        try:
            yield
        except Exception as error:
            rests = "" if getattr(error, "retry", True) else state  # a refusal is an answer
            raise
        finally:
            if (took := time.monotonic() - began) > _SLOW_SECONDS:
                self._rests_until[rests] = began + 5 * took

    def _do(self, case: Case, now: float) -> Decision | None:
        what = "" if case.state == "releasing" else self._what_came_instead(case, now)
        if what:  # no verdict waits for what comes next there
            with self._store.transaction():
                self._cases.move(case.n, "drop", now, ending="replaced", why_released=what)
                # Strikes of hardware with a serial move with it.
                if self._store.has("device WHERE n = ? AND serial = ''", case.device):
                    self._hardware.clear(case.device, now)
            return self._decide("dropped", f"{case.named}: {what}, and is not isolated for it.", case, now)
        failure: tuple[str, bool] | None = None
        held = IsolationOwner.FREE
        try:
            with self._answering(case.state):
                held = self._ask(case)
        except IsolationError as error:
            failure = error.reason, error.retry
        except Exception as error:  # an isolator of another distribution may do anything
            failure = f"{type(error).__name__}: {error}", True
        with self._store.transaction():
            if failure is not None:
                return self._failed(case, *failure, now)
            if case.state == "releasing":
                return self._gone(case, held, now, now)
            return self._left_alone(case, now) if held is IsolationOwner.OTHERS else self._isolated(case, now)

    def _what_came_instead(self, case: Case, now: float) -> str:
        """Returns what replaced the hardware of a case; empty while it is the same, as far as is known."""
        newer = "device AS old JOIN device AS new USING (host, name) WHERE old.n = ? AND new.n <> old.n"
        if self._store.has(f"{newer} AND old.serial <> '' AND new.serial <> '' AND new.last > old.last", case.device):
            return "the device was replaced meanwhile"
        if not isinstance(self._isolator, KnowsHosts):
            return ""
        try:
            with self._answering(case.state):
                since = self._isolator.host_since(case.named)
        except Exception:  # `held` reports it
            return ""
        if not case.host_since:
            # A machine made after a look that found none is new; one that was there is the machine of the case.
            with self._store.transaction():
                self._cases.change(case.n, host_since=int(now) - 1.0 if since is None else since)
        elif since is not None and since > case.host_since:
            return f"host {case.named.host} is a different machine now"
        return ""

    def _ask(self, case: Case) -> IsolationOwner:
        """Has the scheduler isolate or release a device; returns its owner before, or after a release."""
        device, releases = case.named, case.state == "releasing"
        if releases and case.isolator != self._isolator.name:
            raise IsolationError(device, self._isolator.name, f"it was isolated by {case.isolator}", retry=False)
        held = self._isolator.held(device)
        if releases and held is IsolationOwner.OURS:
            self._isolator.release(device)
            return IsolationOwner.FREE
        if not releases and held is IsolationOwner.FREE:
            self._isolator.isolate(device, f"{device}: {case.reason}.", case.event_id)
        return held

    def _isolated(self, case: Case, now: float) -> Decision:
        self._asked[case.n] = self._looked[case.n] = now
        done = {"attempts": 0, "next_try": 0.0, "error": "", "isolator": self._isolator.name}
        self._cases.move(case.n, "isolated", now, **done)
        reason = f"{case.named}: {case.reason}, so it is isolated by the isolator {self._isolator.name}."
        self._cases.tell(case, "isolation", reason, now)
        return self._decide("isolated", reason, case, now)

    def _left_alone(self, case: Case, now: float) -> Decision | None:
        """Waits until others release the device; reports that once."""
        pause = min(_OTHERS_SECONDS, self._policy.longest_pause_seconds)
        self._cases.move(case.n, "held", now, attempts=0, next_try=now + pause, error="")
        reason = f"{case.named}: {case.reason}, but someone else isolated it; it is isolated when they release it."
        return None if case.state == "others" else self._decide("others", reason, case, now)

    def _gone(self, case: Case, held: IsolationOwner, now: float, until: float) -> Decision:
        """Closes a case: the device is not ours any more, and may have been given back at `until`."""
        if case.ending not in BY_HANDLER:
            self._hardware.clear(case.device, until)
        if held is IsolationOwner.OTHERS:
            self._cases.move(case.n, "taken", now)
            alone = f"{case.named}: someone else has isolated it meanwhile; it is not changed."
            return self._decide("others", alone, case, now)
        why = case.why_released or f"it was released in the scheduler (isolator {self._isolator.name})"
        case = self._cases.move(case.n, "free", now, ending=case.ending or "engine", why_released=why, error="")
        reason = f"{case.named}: {why}, so it may work again."
        if self._cases.was_told(case):  # one that was dropped before it was done was never published
            self._cases.tell(case, "recovery", reason, now)
        return self._decide("released", reason, case, now)

    def _failed(self, case: Case, reason: str, retry: bool, now: float) -> Decision:  # noqa: FBT001
        """Notes when it is tried again: a right that is missing may be given, and only people drop a verdict."""
        self.failed_tries += 1
        attempts, policy = case.attempts + 1, self._policy
        pause = min(policy.retry_seconds * 2.0 ** min(case.attempts, 30), policy.longest_pause_seconds)
        self._cases.change(case.n, attempts=attempts, next_try=now + pause, error=reason)
        what = f"{case.named}: {self._isolator.name} can't {'release' if case.state == 'releasing' else 'isolate'} it"
        if attempts >= _RETRIES:
            what += f", {attempts} tries failed"
        sentence = f"{what} ({reason}); next try in {pause:g} s."
        # Reported once, and at once where the scheduler refuses; the tries go on.
        return self._decide("failed" if attempts == (_RETRIES if retry else 1) else case.state, sentence, case, now)

    def _decide(self, action: str, reason: str, case: Case, now: float) -> Decision:
        return Decision(action=action, reason=reason, time=now, device=case.named, event_id=case.event_id, case=case.n)

    def reconcile(self, now: float) -> list[Decision]:
        """Asks whether devices that we isolated still are, and closes the cases of those that are not.

        A device with a permanent fault since the look before may have it since it was released: it is isolated again.
        """
        decisions: list[Decision] = []
        began = time.monotonic()
        for case in sorted(self._cases.in_state("isolated"), key=lambda each: self._asked.get(each.n, 0.0)):
            is_recent = 0 < now - self._asked.get(case.n, now) < RECONCILE_SECONDS
            if self._rests(case.state) or is_recent or case.isolator != self._isolator.name:
                continue
            if time.monotonic() - began > _SLOW_SECONDS and not self.hurries:
                break  # the next pass goes on, after events were read
            self._asked[case.n] = now
            try:
                with self._answering(case.state):
                    held = self._isolator.held(case.named)
            except Exception:  # the next time tells
                continue
            looked, self._looked[case.n] = self._looked.get(case.n, now), now
            if held is not IsolationOwner.OURS:
                with self._store.transaction():
                    since = "strike.verdict = 'persistent' AND received > ? AND cases.n = ? AND state = 'isolated'"
                    is_bad = self._store.has(f"strike JOIN cases USING (device) WHERE {since}", looked, case.n)
                    if is_bad and held is IsolationOwner.FREE:
                        self._cases.move(case.n, "fault", now)
                    else:
                        decisions.append(self._gone(case, held, now, min(looked, now)))
        return decisions

    def publish(self, now: float) -> Decision | None:
        """Publishes waiting events; returns the problem to report when that fails for the first time in a row."""
        sent: list[tuple[float, int]] = []
        failed, problem = self._publishing_fails, None
        for number, event in self._cases.unsent():
            try:
                if not self._already(event.id):
                    self._publish(event)
            except Exception as error:  # a full disk, a dead socket
                reason = f"The event {event.id} ({event.kind}) can't be published: {error}; it is tried again."
                problem = Decision(action="problem", reason=reason, time=now, event_id=event.id)
                break
            sent.append((now, number))
        if sent:
            with self._store.transaction() as db:
                db.executemany("UPDATE outbox SET sent = ? WHERE n = ?", sent)
        self._publishing_fails = problem is not None
        return None if failed else problem
