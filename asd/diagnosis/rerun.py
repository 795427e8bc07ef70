"""Verdict of a re-run step: hardware that failed once, hardware that fails each time, or software and data.

| same device | peer | verdict |
|---|---|---|
| different answer | same as the second one, or no peer | transient |
| different answer | a healthy one, while this device stays abnormal | persistent |
| same answer | a different, healthy one | persistent |
| same answer | same answer | software (or data) |
| anything else | | undetermined, with the reason |

Answers are the same within what healthy runs differ by, see `asd.diagnosis.spread`.
"""

from collections.abc import Callable, Sequence
from math import isnan
from typing import NamedTuple

from asd.diagnosis.spread import Spread, StepResult

_UNKNOWN = Spread()


class Diagnosis(NamedTuple):
    """A verdict, one of `asd.event.VERDICTS`, its reason in words, and whether the same answer came twice."""

    verdict: str
    reason: str
    same_twice: bool = False


def find(
    original: StepResult,
    again: StepResult,
    *,
    repeated: StepResult | None = None,
    siblings: Sequence[StepResult] = (),
    abnormal: Callable[[StepResult], bool],
    no_sibling: str = "there is no peer to compare with",
    unsteady: str = "",
    spread: Spread = _UNKNOWN,
) -> Diagnosis:
    """Returns the verdict about a step.

    Args:
        original: The step as it was.
        again: The same on the same device.
        repeated: Once more on the same device, if that was done. Where `again` differs, this or a sibling must confirm
            it, for a step that never says the same twice shows nothing.
        siblings: Results of peers, on other devices.
        abnormal: Whether an answer breaks the limit that was broken.
        no_sibling: Reason why no peer can run the step.
        unsteady: What shows that healthy runs are further apart than a fault that matters; empty for nothing.
        spread: How far healthy runs are apart; where nothing is known `again` and `repeated` show it.
    """
    is_same = isnan(spread.most) and abnormal(again) and spread.is_rounding(original, again)
    if repeated is not None and isnan(spread.most):
        spread = Spread()
        spread.learn(again, repeated)
        spread.wild.clear()  # perhaps its own
    # Two runs may have the same last bits by chance, of which nothing is known then.
    changed = "" if is_same else spread.difference(original, again)
    doubt = unsteady and f"healthy reruns of a step differ by more than a relevant fault: {unsteady}"
    is_gone = not changed and abnormal(original) and not abnormal(again)
    gone = "the value that broke its limit differs as much in healthy runs" if is_gone else ""
    doubt = doubt or gone or _doubt_about_device(spread, changed, again, repeated, siblings)
    doubt = doubt or _doubt_about_siblings(spread, siblings)
    if doubt:
        return Diagnosis("undetermined", doubt)
    apart = spread.difference(again, siblings[0], with_loss=False) if siblings else ""
    if apart and abnormal(siblings[0]):
        return Diagnosis("undetermined", f"a peer's answer is different and abnormal too: {apart}")
    if apart and abnormal(again):
        return Diagnosis("persistent", f"the same batch is abnormal only on this device, a peer differs: {apart}")
    if changed:
        return Diagnosis("transient", f"a different answer on the same device: {changed}")
    if apart:
        return Diagnosis("undetermined", f"a peer's answer is different, but neither is abnormal: {apart}")
    if siblings:
        how = f"as far as healthy runs go, {spread.most:.2g} apart" if spread.most > 0 else "bit for bit"
        same = f"the same answer on this device and on a peer, {how}: software or data"
        return Diagnosis("software", same, same_twice=True)
    reason = f"the same answer twice, and {no_sibling}: it can be persistent hardware, software or data"
    return Diagnosis("undetermined", reason, same_twice=True)


def _doubt_about_device(
    spread: Spread, changed: str, again: StepResult, repeated: StepResult | None, siblings: Sequence[StepResult]
) -> str:
    if repeated is None:
        if not changed or any(not spread.difference(again, sibling, with_loss=False) for sibling in siblings):
            return ""
        return f"a different answer on the same device, which no third run confirms: {changed}"
    wavers = spread.difference(again, repeated)
    return f"the same device does not give the same answer each time: {wavers}" if wavers else ""


def _doubt_about_siblings(spread: Spread, siblings: Sequence[StepResult]) -> str:
    splits = (spread.difference(siblings[0], sibling, with_loss=False) for sibling in siblings[1:])
    split = next(filter(None, splits), "")
    return f"the peers' answers differ: {split}" if split else ""
