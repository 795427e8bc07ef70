"""Verdict of a re-run step: hardware that failed once, hardware that fails each time, or software and data.

| same device | peer | verdict |
|---|---|---|
| different answer | same as the second one, or no peer | transient |
| different answer | a healthy one, while this device stays abnormal | persistent |
| same answer | a different, healthy one | persistent |
| same answer | same answer | software (or data) |
| anything else | | undetermined, with the reason |
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from asd.rules.reading import AVERAGED, SCORES, Reading


class StepResult(NamedTuple):
    """Result of one run of a step.

    Attributes:
        loss: The bits of its first output, as hex digits; empty when it has none.
        readings: Readings of the checkpoints, in backward order.
    """

    loss: str
    readings: tuple[Reading, ...]

    @classmethod
    def of(cls, loss: bytes, readings: Iterable[Reading]) -> StepResult:
        """Makes a result from readings in any order, without means over the ranks, which depend on other ranks."""
        own = (reading for reading in readings if reading.kind != AVERAGED)
        return cls(loss.hex(), tuple(sorted(own, key=lambda reading: reading.order)))

    def to_json(self) -> str:
        """Returns a text from which `from_json` makes the same result, bit for bit."""
        return json.dumps(self)

    @classmethod
    def from_json(cls, text: str) -> StepResult:
        """Returns the result that `to_json` wrote."""
        loss, readings = json.loads(text)
        return cls(loss, tuple(Reading(*reading) for reading in readings))


class Diagnosis(NamedTuple):
    """A verdict, one of `asd.event.VERDICTS`, its reason in words, and whether the same answer came twice."""

    verdict: str
    reason: str
    same_twice: bool = False


def difference(one: StepResult, other: StepResult, *, with_loss: bool = True, least: float = 0.0) -> str:
    """Returns the first difference in backward order, in words; empty if every bit that both know is the same.

    Args:
        one: An answer.
        other: An answer of the same step.
        with_loss: Whether the loss counts; that of a peer may be an average over other batches.
        least: How far two numbers must be apart to count, relative to the larger one, or to a thousandth of the largest
            of all, below which a number may be the rounding of others; for 0 a bit is enough.
    """
    finite = [abs(each.value) for each in one.readings if math.isfinite(each.value)] if least else []
    top = 2.0**-10 * max(finite, default=0.0)
    ours, theirs = ({reading.checkpoint: reading for reading in each.readings} for each in (one, other))
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        if name not in ours or name not in theirs:
            if (ours.get(name) or theirs[name]).kind in SCORES:
                continue  # a suspected rank checks more than its peers
            return f"{name} was checked in one run only"
        here, there = ours[name].value, theirs[name].value
        if _bits(here) != _bits(there) and not abs(here - there) < least * max(abs(here), abs(there), top):
            return f"{name} is {here:.9g} and {there:.9g}"
    if with_loss and one.loss and other.loss and one.loss != other.loss:
        return "the loss differs"
    return ""


def assignment(size: int, suspects: Iterable[int]) -> list[int]:
    """Returns the rank whose batch each rank runs, so that every suspect has a peer.

    Where there are enough others, each of them runs the batch of a suspect, and the suspects run their own again: that
    shows whether an answer depends on what the other ranks do. Otherwise each rank runs the batch of the next one.

    Args:
        size: Number of ranks, from 2 on.
        suspects: Ranks with a first-level anomaly, at least one.

    >>> assignment(4, [1])
    [1, 1, 1, 1]
    >>> assignment(2, [0, 1])
    [1, 0]
    """
    bad = sorted(set(suspects))
    others = [rank for rank in range(size) if rank not in bad]
    if len(others) < len(bad):
        return [(rank + 1) % size for rank in range(size)]
    runs = list(range(size))
    for i, rank in enumerate(others):
        runs[rank] = bad[i % len(bad)]
    return runs


def find(
    original: StepResult,
    again: StepResult,
    *,
    repeated: StepResult | None = None,
    siblings: Sequence[StepResult] = (),
    abnormal: Callable[[StepResult], bool],
    no_sibling: str = "there is no sibling to compare with",
    unsteady: str = "",
) -> Diagnosis:
    """Returns the verdict about a step.

    Args:
        original: The step as it was.
        again: The same on the same device.
        repeated: Once more on the same device, if that was done. Where `again` differs, this or a sibling must confirm
            it, for a step that never says the same twice shows nothing.
        siblings: Results of peers, on other devices.
        abnormal: Whether an answer breaks the limit that was broken.
        no_sibling: Reason why there are no peers, where there are none.
        unsteady: What shows that a healthy device does not repeat a step bit for bit; empty for nothing.
    """
    changed = difference(original, again)
    doubt = unsteady and f"healthy ranks do not repeat a step bit for bit: {unsteady}"
    doubt = doubt or _doubt_about_device(changed, again, repeated, siblings) or _doubt_about_siblings(siblings)
    if doubt:
        return Diagnosis("undetermined", doubt)
    apart = difference(again, siblings[0], with_loss=False) if siblings else ""
    if apart and abnormal(siblings[0]):
        return Diagnosis("undetermined", f"a sibling's answer is another one and abnormal too: {apart}")
    if apart and abnormal(again):
        return Diagnosis("persistent", f"the same batch is abnormal on this device only, a sibling differs: {apart}")
    if changed:
        return Diagnosis("transient", f"another answer on the same device: {changed}")
    if apart:
        return Diagnosis("undetermined", f"a sibling's answer is another one, yet neither is abnormal: {apart}")
    if siblings:
        same = "the same answer on this device and on a sibling, bit for bit: software or data"
        return Diagnosis("software", same, same_twice=True)
    reason = f"the same answer twice, and {no_sibling}: it can be persistent hardware, software or data"
    return Diagnosis("undetermined", reason, same_twice=True)


def _doubt_about_device(
    changed: str, again: StepResult, repeated: StepResult | None, siblings: Sequence[StepResult]
) -> str:
    if repeated is None:
        if not changed or any(not difference(again, sibling, with_loss=False) for sibling in siblings):
            return ""
        return f"another answer on the same device, which no third one confirms: {changed}"
    wavers = difference(again, repeated)
    return f"the same device does not give the same answer each time: {wavers}" if wavers else ""


def _doubt_about_siblings(siblings: Sequence[StepResult]) -> str:
    splits = (difference(siblings[0], sibling, with_loss=False) for sibling in siblings[1:])
    split = next(filter(None, splits), "")
    return f"the siblings' answers differ among themselves: {split}" if split else ""


def _bits(value: float) -> object:
    return "nan" if math.isnan(value) else (value, math.copysign(1, value))
