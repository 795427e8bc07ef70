"""Judges the recorded values of a run by the real rules, and proposes thresholds for a budget of false alarms."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, isfinite, log2
from typing import Final, NamedTuple

from asd.config import Config
from asd.errors import ConfigError
from asd.judge.detectors import Detectors
from asd.rules import RULES, SilentCheckV3, Threshold
from asd.rules.margins import ENOUGH, KEPT, exceeded_by
from asd.rules.reading import GRADIENT, Reading
from asd.rundir.recording import RecordedStep
from asd.verdict import Level

LOWEST, HIGHEST, HIGHEST_SECOND = 3, 2**63 - 1, 2**61
"""Range of the settings; a second threshold this large leaves room for a first one above it, as floats too."""
_WIDEN: Final = 128 / 101.15
"""95 % upper bound of an exponential's mean, over the mean excess of the 64 largest values: 2*64 / chi2(5 %, 126)."""


class Test(NamedTuple):
    """Test of a rule."""

    setting: str  # field of `Config` with its thresholds, `upper` or `sigma`
    what: str  # description of its score


NORM = Test("upper", "L2 norm")
JUMP = Test("sigma", "jump of the L2 norm, in widths of its range")
RATIO = Test("upper", "max(g²) over its running mean")


def tests_of(config: Config) -> tuple[Test, ...]:
    """Returns the tests of the rule in `config` that have thresholds."""
    takes = RULES[config.rule].takes
    if "upper" not in takes:
        able = ", ".join(name for name, rule in RULES.items() if "upper" in rule.takes)
        raise ConfigError("ASD_RULE", config.rule, f"one of {able}; {config.rule} has thresholds of its own")
    return (RATIO,) if "sigma" not in takes else (NORM, JUMP)


class Scores:
    """Scores of one test."""

    def __init__(self) -> None:
        self.counts = Counter[int]()  # number of scores by rank: ranks may hold the same values
        self.largest: defaultdict[int, list[float]] = defaultdict(list)  # of each rank the 64 largest scores above 0
        self.extreme = 0.0, ""  # largest score, and a text with its place

    def add(self, score: float, name: str, step: RecordedStep) -> None:
        """Adds one score, of checkpoint `name` in `step`."""
        self.counts[step.rank] += 1
        if score <= 0.0:
            return
        if score > self.extreme[0]:
            self.extreme = score, f"{name}, rank {step.rank}, step {step.step}"
        heapq.heappush(self.largest[step.rank], score)
        if len(self.largest[step.rank]) > KEPT:
            heapq.heappop(self.largest[step.rank])

    def threshold(self, share: float) -> int | None:
        """Returns the largest threshold of all ranks that have enough scores, and none below a score."""
        found = [threshold(largest, self.counts[rank], share) or 0 for rank, largest in self.largest.items()]
        return max(*found, min(ceil(self.extreme[0]), HIGHEST)) if any(found) else None


@dataclass
class Replayed:
    """Result of judging recorded values."""

    steps: int = 0  # steps that were counted
    checks: int = 0  # values in them
    first: int = 0  # first-level anomalies
    second: int = 0  # second-level anomalies
    left_out: Counter[str] = field(default_factory=Counter)  # steps that were not counted, by reason
    places: set[tuple[int, str]] = field(default_factory=set)  # rank and checkpoint of all counted values
    scores: dict[Test, Scores] = field(default_factory=dict)  # scores of the values by their test, if measured


def replay(steps: Iterable[RecordedStep], config: Config, *, measure: bool = False) -> Replayed:
    """Judges `steps` as a training with `config` would have.

    Flagged and refused steps pass through the rules as in the training, and their other values are learned; they are
    not counted and have no scores. A training that begins at step 1 begins with new rules; a resumed one keeps the
    rules it has.

    Each rank made its steps in this order, and is judged as if it were alone. With `measure`, scores are kept.
    """
    done = Replayed(scores={test: Scores() for test in tests_of(config)} if measure else {})
    trainings: dict[int, _Training] = {}
    for step in steps:
        if step.step == 1 or step.rank not in trainings:
            trainings[step.rank] = _Training(config, done)
        counts = not step.left_out
        if not counts:
            done.left_out[step.left_out] += 1
        trainings[step.rank].judge(step, counts=counts)
    return done


class _Training:
    """Rules of one rank from its first step on."""

    def __init__(self, config: Config, done: Replayed) -> None:
        self._config, self._done = config, done
        self._judges = Detectors(config)
        self._scorers: dict[str, _Scorer] = {}

    def judge(self, step: RecordedStep, *, counts: bool) -> None:
        done, levels = self._done, {Level.NORMAL}
        _, moved = self._judges.cause([Reading(name, value, 0, kind) for name, kind, value in step.values], 1.0)
        for name, kind, value in step.values:
            level = self._judges.update(name, kind, value).verdict.level
            levels.add(level)
            if counts:
                done.first += level is Level.ERROR
                done.second += level is Level.WARNING
                done.places.add((step.rank, name))
                if done.scores and isfinite(value):
                    if name not in self._scorers:
                        self._scorers[name] = _Scorer(self._config, kind)
                    for test, score in self._scorers[name].scores(value):
                        done.scores[test].add(score, name, step)
        done.steps += counts
        done.checks += len(step.values) if counts else 0
        if moved and max(levels) is Level.WARNING:  # a change, as `Monitor` takes it
            self._judges.begin_anew()
        self._judges.end_step()


class _Scorer:
    """Scorer of the values of one checkpoint by the published tests of a rule; it learns as they do."""

    def __init__(self, config: Config, kind: str) -> None:
        tests = tests_of(config)
        self._square = SilentCheckV3(config.upper, learn_errors=not config.refuses) if RATIO in tests else None
        judges_norm = NORM in tests and (kind == GRADIENT or config.rule != "adaptive")
        self._norm = Threshold(config.upper, config.sigma) if judges_norm else None

    def scores(self, value: float) -> Iterator[tuple[Test, float]]:
        """Yields the scores of a finite value with their tests, before it is learned."""
        if self._norm is not None:
            yield NORM, value
            jump = self._norm.jump(value)
            if isfinite(jump):
                yield JUMP, max(jump, 0.0)
            self._norm.update(value)
        if self._square is not None:
            square = value * value
            ratio = self._square.ratio(square)
            if isfinite(ratio):
                yield RATIO, ratio
            self._square.update(square)


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
    found = {test.setting: scores.threshold(share) for test, scores in seen.scores.items()}
    return {setting: level for setting, level in found.items() if level is not None}


def threshold(largest: Sequence[float], count: int, share: float) -> int | None:
    """Returns the smallest setting that no score exceeds and that keeps to the budget; None with too few scores.

    Beyond the largest score the tail is extrapolated: log2 of the scores falls off exponentially, with the upper 95 %
    bound of its mean excess.

    `largest` are the largest of `count` scores, in any order; fewer than 64 if fewer are above 0.
    """
    if count < ENOUGH or len(largest) < KEPT:
        return None
    score = max(*largest, 2.0 ** min(exceeded_by([log2(each) for each in largest], count, share, widen=_WIDEN), 1023.0))
    return HIGHEST if not isfinite(score) or score >= HIGHEST else max(LOWEST, ceil(score))
