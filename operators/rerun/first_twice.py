"""The first step of a process that can be made again is made twice, and both must say the same, bit for bit.

It is the second one: only a step that was compiled shows what stands in the way. It is made once without a trace before
the loop makes it, so what the training does is what it does without this. A difference has two reasons. Where the
next step differs too, this training never repeats a step: a second look and a replay would mean nothing, and are told
so. Where the next step is the same twice, the device gave a wrong number once.
"""

from __future__ import annotations

from asd.errors import RankLostError
from asd.operators.gate.part import Part, StepRecord
from asd.operators.measure.step_tensors import bits_of_first
from asd.operators.rerun.repeatable_step import Step
from asd.operators.rerun.step_replay import StepReplay
from asd.rules.diagnosis.rerun import Answer, difference
from asd.rules.readings.reading import SCORES, Reading
from asd.rules.step.confirmation import OF_OPTIMIZER, has_fallen

__all__ = ["FirstTwice"]

_OTHERS = ["another rank's"]
_FIRST, _LAST = 2, 3
"""Steps of the process that may be made twice, the last one only where the first one differed."""


class FirstTwice(Part):
    """That of one `StepMonitor`.

    Args:
        replay: Knows the step.
        wanted: Whether it is to be done at all.
    """

    def __init__(self, replay: StepReplay, *, wanted: bool) -> None:
        self.wanted = wanted
        self._replay = replay
        self._steps = 0
        self._asked = self._all_prepare = False  # who shows no beginning of a step can't make it with the others
        self._answer: Answer | None = None
        self._differed: list[str] = []  # how the first one did

    def prepare(self, step: Step) -> None:
        """Makes the step that comes next without a trace, if it is its turn; in data parallel a call of all ranks."""
        self._steps += 1
        if not (self._all_prepare and _FIRST <= self._steps <= _LAST):
            return
        again = self._replay.step
        ready = again is not None and again.is_repeatable and again.can_be_compared and not again.obstacle()
        if again is not None and again.is_passed_by:
            self._replay.tell(after_first_step=True)
            self.monitor.protections.tell()
        try:
            told = self.ranks.tell(ready=ready, wanted=self._steps == _FIRST or bool(self._differed))
            if again is None or not all(rank["ready"] for rank in told) or not any(rank["wanted"] for rank in told):
                return
            with again.without_a_trace(compare=True):
                self._answer, failure = again.rerun_discarding()
            told = self.ranks.tell(failure=failure, changed=again.changed and again.obstacle())
            if any(rank["failure"] or rank["changed"] for rank in told):
                self._answer = None
            if changed := next((rank["changed"] for rank in told if rank["changed"]), ""):
                self._replay.give_up(changed)
        except RankLostError:  # the exchange keeps it, which ends the step
            self._answer = None

    def compare(self, step: StepRecord) -> None:
        """Says what came of it, once the loop has made the step; in data parallel a call of all ranks."""
        answer, self._answer = self._answer, None
        try:
            if not self._asked:
                self._asked = True
                self._all_prepare = all(rank["prepares"] for rank in self.ranks.tell(prepares=self._steps == 1))
            elif answer is not None and step.readings is not None and not (step.refused or step.again):
                self._say(step, answer, Answer.of(bits_of_first(step.outputs), step.readings))
        except RankLostError:  # as above
            return

    def _say(self, step: StepRecord, one: Answer, other: Answer) -> None:
        found, before, protections = _differences(one, other), self._differed, self.monitor.protections
        self._differed = found
        if self._steps == _FIRST:
            if not found:
                protections.has(repeats="bit for bit, as the second step showed")
        elif any(rank["apart"] for rank in self.ranks.tell(apart=_far_apart(one, other))):
            self._replay.give_up(f"a step that is made twice does not say the same: {(found or before or _OTHERS)[0]}")
        elif found:
            protections.has(repeats=f"not bit for bit: {found[0]}")
        elif before:
            step.events.append(self.monitor.report_unrepeated(step.number - 1, len(before), before[0]))
            protections.has(repeats="bit for bit, but for the second step")
        self.monitor.status.protections = protections.to_json()


def _differences(one: Answer, other: Answer) -> list[str]:
    """Of each checkpoint; that an optimizer looks once more at what it applies does not count."""
    alone = [difference(Answer("", (each,)), Answer("", (same,))) for each, same in _pairs(one, other)]
    return [words for words in [*alone, difference(Answer(one.loss, ()), Answer(other.loss, ()))] if words]


def _far_apart(one: Answer, other: Answer) -> bool:
    return any(has_fallen(each, same) or has_fallen(same, each) for each, same in _pairs(one, other))


def _pairs(one: Answer, other: Answer) -> list[tuple[Reading, Reading]]:
    """What both saw of tensors; a score says how far a result is off, which is rounding."""
    first, second = (
        {r.checkpoint: r._replace(order=0, calls=0 if r.kind in OF_OPTIMIZER else r.calls) for r in each.readings}
        for each in (one, other)
    )
    return [(r, second[name]) for name, r in first.items() if name in second and r.kind not in SCORES]
