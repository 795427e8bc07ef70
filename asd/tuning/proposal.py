"""Proposes thresholds for a budget of false alarms, from the recorded values of a run."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite, log2
from typing import Final

from asd.config import Config
from asd.rules.margins import ENOUGH, KEPT, exceeded_by
from asd.rundir.recording import RecordedStep
from asd.tuning.replay import Replayed, replay, tests_of

LOWEST, HIGHEST, HIGHEST_SECOND = 3, 2**63 - 1, 2**61
"""Range of the settings; a second threshold this large leaves room for a first one above it, as floats too."""
_WIDEN: Final = 128 / 101.15
"""95 % upper bound of an exponential's mean, over the mean excess of the 64 largest values: 2*64 / chi2(5 %, 126)."""


@dataclass
class Proposal:
    """Proposed settings, and their basis."""

    pairs: dict[str, tuple[int, int]]  # thresholds by field of `Config`, where enough values were seen
    today: Replayed  # alarms by the thresholds of the run
    proposed: Replayed  # alarms by thresholds out of reach, with the scores on which the proposal rests


def propose(
    source: Callable[[], Iterable[RecordedStep]], config: Config, first: float = 1e-6, second: float = 1e-4
) -> Proposal:
    """Proposes thresholds for a budget of false alarms, none of them below a seen value.

    All tests of a rule share the budget evenly: `first` first-level anomalies per check, `second` anomalies of either
    level. `source` returns all steps, from the beginning at every call.

    Raises:
        ConfigError: The rule has no thresholds to propose.
    """
    tests = tests_of(config)
    today = replay(source(), config)
    out_of_reach = (HIGHEST, HIGHEST_SECOND)
    seen = replay(source(), replace(config, upper=out_of_reach, sigma=out_of_reach), measure=True)
    highs, lows = (_per_setting(seen, share / len(tests)) for share in (first, second))
    lows = {setting: min(low, HIGHEST_SECOND) for setting, low in lows.items()}
    # Distinct as floats too.
    pairs = {setting: (max(highs[setting], low + (low >> 50) + 1), low) for setting, low in lows.items()}
    return Proposal(pairs, today, seen)


def _per_setting(seen: Replayed, share: float) -> dict[str, int]:
    """Returns per setting the threshold that suits all its tests; settings with too few values are left out."""
    found = {test.setting: threshold(scores.largest, scores.count, share) for test, scores in seen.scores.items()}
    return {setting: level for setting, level in found.items() if level is not None}


def threshold(largest: Sequence[float], count: int, share: float) -> int | None:
    """Returns the smallest setting that no score exceeds and that keeps to the budget; None with too few scores.

    Beyond the largest score the tail is extrapolated: log2 of the scores falls off exponentially, with the upper 95 %
    bound of its mean excess.

    `largest` are the largest of `count` scores, in any order; fewer than 64 if fewer are above 0.
    """
    if count < ENOUGH or len(largest) < KEPT:
        return None
    bits = exceeded_by([log2(each) for each in largest], count, share, widen=_WIDEN)
    score = max(*largest, 2.0 ** min(bits, 1023.0))
    return HIGHEST if not isfinite(score) or score >= HIGHEST else max(LOWEST, ceil(score))
