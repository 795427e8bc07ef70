"""Searches the thresholds that keep to a budget, the second level first: it decides what a rule learns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from asd.config import Config
from asd.rundir.recording import RecordedStep
from asd.tuning.budget import HIGHEST, HIGHEST_SECOND, AlarmBudget, allowed, needed, threshold
from asd.tuning.replay import Replayed, Test, replay, tests_of

__all__ = ["Proposal", "propose"]


@dataclass
class Proposal:
    """Proposed settings, and what they rest on.

    Attributes:
        config: The settings with the proposed thresholds.
        pairs: The thresholds by setting; those for which too few values were seen are left out.
        exceeding: Per test how many values may be above its first threshold; -1 where that is extrapolated.
        needed: Values without an exceedance from which the first-level budget would follow without extrapolation.
        today: What the thresholds of the run would have raised.
        proposed: What the proposed ones would have raised.
        unavoidable: What the rule raises with thresholds out of reach, by margins of its own; it has the scores.
        keeps: Whether the proposed ones raise no more than that and the budget.
    """

    config: Config
    pairs: dict[str, tuple[int, int]]
    exceeding: dict[Test, int]
    needed: int
    today: Replayed
    proposed: Replayed
    unavoidable: Replayed
    keeps: bool = False


def propose(
    source: Callable[[], Iterable[RecordedStep]],
    config: Config,
    budget: AlarmBudget | None = None,
) -> Proposal:
    """Proposes thresholds for `budget`.

    All tests of a rule share the budget evenly. The second thresholds are settled before the first ones. What a
    threshold flags may not be learned, and then changes the scores of what follows: so every choice is judged again by
    the real rules, and fewer values may exceed the next one until the budget is kept.

    Args:
        source: Gives all steps anew with every call.
        config: The rule, its tiers and today's thresholds.
        budget: False alarms per check that are accepted.

    Raises:
        ConfigError: The budget is out of range, or the rule has no thresholds to propose.
    """
    budget = (budget or AlarmBudget()).checked()
    tests = tests_of(config)

    def judged(pairs: dict[str, tuple[int, int]], *, measure: bool = False) -> Replayed:
        return replay(source(), _with(config, pairs), measure=measure)

    out_of_reach = dict.fromkeys(("upper", "sigma"), (HIGHEST, HIGHEST_SECOND))
    today, free = judged({}), judged(out_of_reach, measure=True)
    share, settled, second = budget.second / len(tests), free, {}
    for exceeding in _fewer_and_fewer(tests, free, share):
        second = _per_setting(free, share, exceeding)
        settled = judged({each: (HIGHEST, min(low, HIGHEST_SECOND)) for each, low in second.items()}, measure=True)
        if settled.flagged - free.flagged <= budget.second * settled.checks:
            break
    share = budget.first / len(tests)
    found = Proposal(config, {}, {}, needed(share), today, today, free)
    for found.exceeding in _fewer_and_fewer(tests, settled, share):
        first = _per_setting(settled, share, found.exceeding)
        lows = {setting: min(low, HIGHEST_SECOND) for setting, low in second.items() if setting in first}
        # Apart as floats too.
        found.pairs = {setting: (max(first[setting], low + (low >> 50) + 1), low) for setting, low in lows.items()}
        found.config, found.proposed = _with(config, found.pairs), judged(found.pairs)
        found.keeps = (
            found.proposed.first - free.first <= budget.first * found.proposed.checks
            and found.proposed.flagged - free.flagged <= budget.second * found.proposed.checks
        )
        if found.keeps:
            break
    return found


def _with(config: Config, pairs: dict[str, tuple[int, int]]) -> Config:
    return replace(config, upper=pairs.get("upper", config.upper), sigma=pairs.get("sigma", config.sigma))


def _fewer_and_fewer(tests: Iterable[Test], seen: Replayed, share: float) -> Iterable[dict[Test, int]]:
    """How many values may exceed the threshold of each test: as many as the budget allows, half of it, ..., none."""
    most = {test: allowed(seen.scores[test.name].count, share) for test in tests}
    largest = max(most.values())
    for cap in [*(largest >> i for i in range(largest.bit_length())), 0] if largest > 0 else [largest]:
        yield {test: min(number, cap) for test, number in most.items()}


def _per_setting(seen: Replayed, share: float, exceeding: dict[Test, int]) -> dict[str, int]:
    """Per setting the threshold that suits all its tests; settings with too few values are left out."""
    found = {}
    for test, number in exceeding.items():
        scores = seen.scores[test.name]
        level = threshold(scores.largest, scores.count, share, number)
        if level is not None:
            found[test.setting] = level
    return found
