"""Searches the thresholds that keep to a budget, the second level first: it decides what a rule learns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from asd.config import Config
from asd.rundir.recording import RecordedStep
from asd.tuning.budget import HIGHEST, HIGHEST_SECOND, AlarmBudget, allowed, needed, steps_down, threshold
from asd.tuning.rejudge import Replayed, replay
from asd.tuning.scores import Extreme, Scores, Test, tests_of

__all__ = ["Proposal", "ProposedThreshold", "held_out", "propose"]

_Source = Callable[[], Iterable[RecordedStep]]
_OUT_OF_REACH = HIGHEST, HIGHEST_SECOND


class ProposedThreshold(NamedTuple):
    """What one test has shown and which thresholds follow.

    Attributes:
        test: The test.
        seen: Values that it has judged.
        exceeding: How many of them may be above the first and the second threshold; -1 where that is extrapolated.
        pair: The thresholds that follow from this test; None where too few values were seen.
        today: The ones in force.
        drivers: The checkpoints with the largest scores.
        scores: All of them.
    """

    test: Test
    seen: int
    exceeding: tuple[int, int]
    pair: tuple[int, int] | None
    today: tuple[int, int]
    drivers: list[Extreme]
    scores: Scores


@dataclass
class Proposal:
    """Proposed settings, and what they rest on.

    Attributes:
        config: The settings with the proposed thresholds.
        budget: The budget.
        needed: Values without an exceedance from which the first-level budget would follow without extrapolation.
        tests: Per test what it has shown.
        today: What the thresholds of the run would have raised.
        proposed: What the proposed ones would have raised.
        unavoidable: What the rule raises with thresholds out of reach, by margins of its own.
        keeps: Whether the proposed ones raise no more than that and the budget.
    """

    config: Config
    budget: AlarmBudget
    needed: int
    tests: list[ProposedThreshold]
    today: Replayed
    proposed: Replayed
    unavoidable: Replayed
    keeps: bool


def propose(
    source: _Source, config: Config, budget: AlarmBudget | None = None, *, keep_flagged: bool = False
) -> Proposal:
    """Proposes thresholds for `budget`.

    All tests of a rule share the budget evenly. The second thresholds are settled before the first ones. What a
    threshold flags may not be learned, and then changes the scores of what follows: so every choice is judged again by
    the real rules, and fewer values may exceed the next one until the budget is kept.

    Args:
        source: Gives all steps anew with every call.
        config: The rule, its tiers and today's thresholds.
        budget: False alarms per check that are accepted.
        keep_flagged: Whether flagged and refused steps count as healthy.

    Raises:
        ConfigError: The budget is out of range, or the rule has no thresholds to propose.
    """
    budget = (budget or AlarmBudget()).checked()
    tests = tests_of(config)

    def judged(changed: Config, *, measure: bool = False) -> Replayed:
        return replay(source(), changed, keep_flagged=keep_flagged, measure=measure)

    today = judged(config)
    free = judged(replace(config, upper=_OUT_OF_REACH, sigma=_OUT_OF_REACH), measure=True)
    share = budget.second / len(tests)
    settled, second = free, {test.setting: HIGHEST_SECOND for test in tests}
    pairs: dict[str, tuple[int, int]] = {}
    most = {test: allowed(free.scores[test.name].count, share) for test in tests}
    chosen = most
    for cap in steps_down(max(most.values())):
        chosen = {test: min(most[test], cap) for test in tests}
        found = _per_setting(tests, free, share, chosen)
        second = {setting: min(level, HIGHEST_SECOND) for setting, level in found.items()}
        settled = judged(_with(config, {setting: (HIGHEST, low) for setting, low in second.items()}), measure=True)
        if settled.flagged - free.flagged <= budget.second * settled.checks:
            break
    share = budget.first / len(tests)
    most = {test: allowed(settled.scores[test.name].count, share) for test in tests}
    firsts, final, proposed, keeps = most, config, today, False
    for cap in steps_down(max(most.values())):
        firsts = {test: min(most[test], cap) for test in tests}
        first = _per_setting(tests, settled, share, firsts)
        pairs = {
            setting: (max(first[setting], low + (low >> 50) + 1), low)  # apart as floats too
            for setting, low in second.items()
            if setting in first
        }
        final = _with(config, pairs)
        proposed = judged(final)
        keeps = (
            proposed.first - free.first <= budget.first * proposed.checks
            and proposed.flagged - free.flagged <= budget.second * proposed.checks
        )
        if keeps:
            break
    return Proposal(
        config=final,
        budget=budget,
        needed=needed(share),
        tests=[
            ProposedThreshold(
                test,
                free.scores[test.name].count,
                (firsts[test], chosen[test]),
                pairs.get(test.setting),
                getattr(config, test.setting),
                free.scores[test.name].drivers(),
                free.scores[test.name],
            )
            for test in tests
        ],
        today=today,
        proposed=proposed,
        unavoidable=free,
        keeps=keeps,
    )


def held_out(
    source: _Source, config: Config, budget: AlarmBudget | None = None, *, keep_flagged: bool = False
) -> tuple[Proposal, Replayed]:
    """Fits a proposal to the first half of each rank's steps; returns it with what it raises in the second half.

    Args:
        source: As in `propose`.
        config: As in `propose`.
        budget: As in `propose`.
        keep_flagged: As in `propose`.
    """
    totals = Counter(step.rank for step in source())

    def is_early() -> Callable[[RecordedStep], bool]:
        seen: Counter[int] = Counter()

        def among_the_first(step: RecordedStep) -> bool:
            seen[step.rank] += 1
            return 2 * seen[step.rank] <= totals[step.rank]

        return among_the_first

    fitted = propose(lambda: filter(is_early(), source()), config, budget, keep_flagged=keep_flagged)
    early = is_early()
    return fitted, replay(source(), fitted.config, keep_flagged=keep_flagged, counts=lambda step: not early(step))


def _per_setting(tests: Iterable[Test], seen: Replayed, share: float, exceeding: dict[Test, int]) -> dict[str, int]:
    """Per setting the threshold that suits all its tests; settings with too few values are left out."""
    found: dict[str, list[int | None]] = {}
    for test in tests:
        scores = seen.scores[test.name]
        level = threshold(scores.largest, scores.count, share, exceeding[test])
        found.setdefault(test.setting, []).append(level)
    return {
        setting: max(each for each in levels if each is not None)
        for setting, levels in found.items()
        if None not in levels
    }


def _with(config: Config, pairs: dict[str, tuple[int, int]]) -> Config:
    return replace(config, upper=pairs.get("upper", config.upper), sigma=pairs.get("sigma", config.sigma))
