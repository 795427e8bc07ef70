"""From the numbers of one step to verdicts and events: one rule per checkpoint."""

import math
import operator
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from asd.config import Config, cann_version
from asd.diagnosis.attribution import Attribution, Seen
from asd.errors import StateError, and_more
from asd.event import LEVEL_NAMES, Event
from asd.judge.delivery import Delivery, Sink
from asd.judge.detectors import Detectors, Judged, Tensors
from asd.judge.protections import Protections
from asd.judge.reports import Reports
from asd.judge.status import Status
from asd.origin import Origin, machine_name
from asd.rules.checksum import ScoreRule
from asd.rules.reading import AVERAGED, SCORES, Reading, unscaled
from asd.verdict import Level, Verdict

ValueSink = Callable[[int, str, Verdict], None]
_BACKWARD_ORDER, _PLACE, _LEVEL = map(operator.attrgetter, ("order", "checkpoint", "level"))


class Outcome(NamedTuple):
    """Outcome of one step."""

    events: list[Event]  # new events, in the order of the backward pass
    fatal: Event | None  # the first first-level event, the nearest to where a wrong gradient began; None for none


class Monitor:
    """Monitor that judges every checkpoint with a rule of its own.

    Args:
        config: Names the rule, its thresholds, and the effect of an anomaly.
        origin: Origin of the values.
        sinks: Called with every event; one that raises is reported as a problem and does not stop the others. For
            optional methods of a sink see `asd.sinks`.
        value_sink: Called with every judged value when `NPU_ASD_ENABLE=3`.
        history: Number of values of each checkpoint that are kept in `history`.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        config: Config,
        origin: Origin,
        sinks: Sequence[Sink] = (),
        *,
        value_sink: ValueSink | None = None,
        history: int = 200,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.config, self.origin, self.clock = config, origin, clock
        self.sinks = list(sinks)  # receivers of events
        self.value_sink = value_sink if config.log_values else None
        # counts so far
        self.status = Status(origin=origin, machine=machine_name(), pid=os.getpid(), started=clock())
        if origin.device.startswith("Ascend"):
            self.status.cann = cann_version()
        self.protections = Protections()  # checks that protect this training, and those that do not
        self.step = self._step_before = 0  # the last judged step, and the one before
        self.updates = 0  # that the optimizer has made by then, as far as it is known
        self.alone = True  # whether it watches the only rank
        self.moved = False  # whether all sites moved by one factor, for two steps or more; if alone with warnings only
        self.readings: Sequence[Reading] = ()  # readings of the checkpoints in the last judged step
        self.loss_scale = 1.0  # divisor of these readings
        self.found_scale = 0.0  # loss scale that the first values showed; 0 where they showed none
        # per checkpoint the last (step, value, limit, level)
        self.history: dict[str, deque[tuple[int, float, float, Level]]] = {}
        self._history = history
        self._earlier: Mapping[int, Mapping[str, Event]] = {}
        self._incident, self._incident_step = "", -1
        self.judges = Detectors(config)  # rules and detectors; they know the limits of the next step
        self.feature = self.judges.feature
        self._delivery = Delivery(self.sinks, self.status)
        # makes events, for `publish`
        self.reports = Reports(origin, config.rule, self.feature, lambda: self.clock())

    def judge(
        self,
        step: int,
        readings: Sequence[Reading],
        *,
        loss_scale: float = 1.0,
        overflow_expected: bool = False,
        refused: bool = False,
        attribution: Attribution | None = None,
        vanished: Sequence[Reading] = (),
    ) -> Outcome:
        """Judges the readings of one step.

        Args:
            step: Training step, from 1.
            readings: One per site that was checked.
            loss_scale: Every value is divided by it before it is judged.
            overflow_expected: A dynamic loss scaler is at work: it finds its scale by overflowing and skips such steps
                itself, so a value that is not finite is a second-level anomaly as long as the scale is above 1.
            refused: Whether the gate kept the update of this step away from the weights.
            attribution: Whose fault it was, when the ranks compared: of another's, anomalies here become followers.
            vanished: What was suspicious in a first run of this step, whose update was refused, and is not in
                `readings`, which come from a second one: first-level anomalies of a device that failed once.
        """
        self._step_before, self.step = self.step, step
        self.readings, self.loss_scale = readings, loss_scale
        self.status.step = self.protections.step = step
        self.status.steps += 1
        self.status.unjudged = False
        self.status.refused += refused
        cause, moved = self.judges.cause(readings, loss_scale)
        if cause == "change" and not self.alone:
            cause = ""  # only all ranks together know: it may be the device of one
        events = self._of_vanished(step, vanished, readings, attribution) if vanished else []
        self.status.healed += bool(events)
        for reading in sorted(readings, key=_BACKWARD_ORDER):
            judged = self._judge_one(step, reading, loss_scale, overflow_expected=overflow_expected)
            if judged.verdict.level is not Level.NORMAL:
                events.append(self._anomaly(step, reading, judged, attribution, refused=refused, cause=cause))
        # Beyond 14 bits it may be a fault; without an event the levels follow by themselves.
        self.moved = moved and (not self.alone or {event.level for event in events} == {Level.WARNING})
        if (self.moved and self.alone) or any(event.incident for event in events):  # where an earlier attempt ended
            self.judges.begin_anew()
        if self.judges.have_detectors:
            self.judges.end_step()
        if readings:
            self.status.last_check = self.clock()
        self.judges.expected = self._expected(step + 1)
        fatal = self._publish_found(events) if events else None
        self.write_status(events)
        return Outcome(events, fatal)

    def _publish_found(self, events: list[Event]) -> Event | None:
        """Publishes the events of a step; the gravest names the other sites, and is returned if first level."""
        levels = list(map(_LEVEL, events))
        if Level.ERROR in levels:
            goes_on = self._incident if self._incident_step >= self._step_before else ""
            self._incident_step = events[0].step
            events[:] = [replace(event, incident=goes_on) if _is_first(event) else event for event in events]
            self._incident = goes_on or events[levels.index(Level.ERROR)].id
        at = levels.index(Level.ERROR) if Level.ERROR in levels else 0
        first = events[at]
        others = events[:at] + events[at + 1 :]
        if others:
            events[at] = first = replace(first, reason=f"{first.reason}; also {and_more(sorted(map(_PLACE, others)))}")
        for event in (first, *others):
            self.publish(event)
        return first if first.level is Level.ERROR else None

    def _of_vanished(
        self, step: int, vanished: Sequence[Reading], again: Sequence[Reading], attribution: Attribution | None
    ) -> list[Event]:
        events, second = [], {each.checkpoint: unscaled(each, self.loss_scale) for each in again}
        for reading in sorted(vanished, key=_BACKWARD_ORDER):
            suspicion = self.judges.suspicion(reading, self.loss_scale)
            if suspicion is not None:
                reason = f"{suspicion.verdict.reason}: {second.get(reading.checkpoint, math.nan):.3g}"
                suspicion = suspicion._replace(verdict=suspicion.verdict._replace(reason=reason))
                events.append(replace(self._anomaly(step, reading, suspicion, attribution), healed=True))
        return events

    def seen(self, readings: Sequence[Reading], *, loss_scale: float = 1.0, averaged: bool = False) -> dict[str, Seen]:
        """Returns what the ranks exchange about a step before it is judged; changes nothing.

        Args:
            readings: Readings of the step.
            loss_scale: Every value is divided by it.
            averaged: Whether to return the means over the ranks; else the values of this rank alone.
        """
        seen = {}
        for reading in readings:
            if (reading.kind == AVERAGED) is not averaged:
                continue
            broken = self.judges.is_broken(reading, loss_scale)
            # A score is wrong by itself, no matter what other ranks saw.
            value = math.inf if broken and reading.kind in SCORES else unscaled(reading, loss_scale)
            seen[reading.checkpoint] = Seen(reading.order, value, broken)
        return seen

    def judge_state(self, step: int, found: Tensors, *, steps: int = 1) -> Event | None:
        """Judges weights, the optimizer's state, or what an update changed, after `step`, whose update was applied.

        Args:
            step: Training step, from 1.
            found: What was measured of each tensor.
            steps: From the step of the last call to this one.

        Returns:
            The event of the worst anomaly, named after its tensor.
        """
        verdicts = self.judges.judge_state(found, steps=steps)
        if not verdicts:
            return None
        (name, verdict), *others = verdicts.items()
        if others:
            verdict = verdict._replace(reason=f"{verdict.reason}; also {and_more([other for other, _ in others])}")
        event = self.reports.state_anomaly(step, name, verdict)
        before = self._earlier.get(step, {}).get(event.checkpoint)
        if before is not None and before.key == event.key and event.value <= 2 * before.value:
            self.publish(self._repeated(event))
            return None
        return self.publish(event)

    def know(self, earlier: Mapping[int, Mapping[str, Event]], step: int) -> None:
        """Takes in, after `step`, what earlier attempts ended with, by step and checkpoint: a repetition passes."""
        self._earlier = earlier
        self.judges.expected = self._expected(step + 1)

    def _repeated(self, event: Event) -> Event:
        """Returns `event` as a change of second level, as an earlier attempt ended in the same step with as much."""
        began = next(iter(self._earlier[event.step].values()))
        return replace(event, level=Level.WARNING, cause="change", incident=began.incident or began.id)

    def _expected(self, step: int) -> dict[str, float]:
        return {name: event.value for name, event in self._earlier.get(step, {}).items() if not event.key}

    def begin(self) -> None:
        """Marks the training as active in the status; its first step may be minutes away."""
        self.status.active = True
        self.write_status()

    def tell_protections(self, *, all_of_them: bool = False) -> None:
        """Reports checks found inactive since the last call; or all checks, active or not."""
        self.protections.tell(all_of_them=all_of_them)
        self.status.protections = self.protections.to_json()

    def has(self, **protections: str) -> None:
        """Sets protections as `Protections.has`, in the status too."""
        self.protections.has(**protections)
        self.status.protections = self.protections.to_json()

    def end(self) -> None:
        """Marks the training as ended in the status."""
        self.status.active = False
        self.write_status()

    def end_with_process(self) -> None:
        """Ends a training that an exception or Ctrl-C ended. A forked process does not end its parent's training."""
        if self.status.active and self.status.pid == os.getpid():
            self.end()

    def problem(self, reason: str, checkpoint: str = "", cause: str = "") -> Event:
        """Reports that the detector itself could not do its work."""
        self.status.problems += 1
        return self.publish(replace(self.reports.problem(self.step, checkpoint, reason), cause=cause))

    def publish(self, event: Event) -> Event:
        """Counts `event` and hands it to every sink; the first failure of one is a problem that the others are told."""
        if event.kind == "anomaly":
            self.status.anomalies[LEVEL_NAMES[event.level]] += 1
        if self.sinks:
            self._tell(self._delivery.event(event))
        return event

    def write_status(self, events: Sequence[Event] = ()) -> None:
        """Passes to the sinks the counts since the last call, and the events of a judged step."""
        self.status.written = self.clock()
        if self.sinks:
            self._tell(self._delivery.step(self, events))

    def _tell(self, failures: Sequence[str]) -> None:
        for reason in failures:
            self.problem(reason)

    def state(self) -> dict[str, Any]:
        """Returns the state of a run that judges on as if it had not stopped, ready for JSON except `inf` and `nan`."""
        goes_on = self._incident if self._incident_step == self.step else ""
        return {
            "rule": self.config.rule,
            "step": self.step,
            **({"incident": goes_on} if goes_on else {}),
            **({"loss_scale": self.found_scale} if self.found_scale else {}),
            **self.judges.state(),
        }

    def restore(self, state: Mapping[str, Any], known: Sequence[str] = ()) -> None:
        """Takes over what `state` returned; a StateError leaves all unchanged.

        Args:
            state: From `state`.
            known: Names of the checkpoints of this network; if given, at least one must be in the state.
        """
        if state.get("rule") != self.config.rule:
            raise StateError(f"the saved state is of rule {state.get('rule')!r}; this run uses {self.config.rule!r}.")
        saved, step = state.get("checkpoints"), state.get("step")
        if not isinstance(saved, Mapping) or not isinstance(step, int):
            raise StateError(f"the saved state has no checkpoints or no step but {sorted(state)}.")
        if known and saved and not set(known) & set(saved):
            held, here = and_more(sorted(saved)), and_more(sorted(known))
            raise StateError(f"the saved state is of another network: it has {held}, this network has {here}.")
        found = state.get("loss_scale", 0.0)
        if type(found) is not float or not 0 <= found < math.inf:
            raise StateError(f"the loss scale of the saved state must be a number above 0; it is {found!r}.")
        self.judges, self.found_scale = Detectors.of(self.config, state), found
        self.step = self._incident_step = step
        self._incident = str(state.get("incident", ""))

    def _judge_one(self, step: int, reading: Reading, loss_scale: float, *, overflow_expected: bool) -> Judged:
        """Returns the verdict on one checkpoint, counted and kept."""
        name, value = reading.checkpoint, unscaled(reading, loss_scale)
        if not reading.finite and overflow_expected and loss_scale > 1 and reading.kind not in SCORES:
            reason, limit = "not finite: overflow under a dynamic loss scale", self.judges.limit(name, reading.kind)
            judged = Judged(Verdict(Level.WARNING, reason, value, limit), self.feature)
        else:
            most = self.judges.limit(name, reading.kind) if name in self.judges.expected else -math.inf
            judged = self.judges.update(name, reading.kind, value)
            if judged.verdict.level is Level.ERROR and value <= most:
                reason = f"{judged.verdict.reason}; an attempt before ended with as much in this step"
                judged = judged._replace(verdict=judged.verdict._replace(level=Level.WARNING, reason=reason))
        verdict = judged.verdict
        self.status.add(name, verdict)
        if name not in self.history:
            self.history[name] = deque(maxlen=self._history)
        self.history[name].append((step, verdict.value, verdict.limit, verdict.level))
        if self.value_sink is not None:
            self.value_sink(step, name, verdict)
        return judged

    def _anomaly(
        self,
        step: int,
        reading: Reading,
        judged: Judged,
        attribution: Attribution | None,
        *,
        refused: bool = False,
        cause: str = "",
    ) -> Event:
        evidence = ""
        if self.sinks and judged.verdict.level is Level.ERROR:
            evidence, failures = self._delivery.place(step)
            self._tell(failures)
        rule = ScoreRule.name if reading.kind in SCORES else self.config.rule
        why = "" if reading.finite and not judged.verdict.value > judged.broken else cause
        event = self.reports.anomaly(
            step, reading, judged, rule=rule, refused=refused, evidence=evidence, attribution=attribution, cause=why
        )
        is_known = event.level is not Level.ERROR and event.checkpoint in self.judges.expected
        return self._repeated(event) if is_known else event


def _is_first(event: Event) -> bool:
    return event.kind == "anomaly" and event.level is Level.ERROR
