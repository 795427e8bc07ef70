"""Judges recorded values again, by the real rules, and keeps what their tests compare with the thresholds."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from asd.config import Config
from asd.errors import ConfigError
from asd.rules import RULES, SilentCheckV3, Threshold
from asd.rules.readings.reading import GRADIENT
from asd.rules.step.detectors import Detectors
from asd.rundir.recording import RecordedStep
from asd.tuning.budget import MOST_EXCEEDING
from asd.verdict import Level

__all__ = ["Replayed", "Scores", "Test", "replay", "tests_of"]


class Test(NamedTuple):
    """One test of a rule.

    Attributes:
        name: `value`, `jump` or `ratio`.
        setting: The field of `Config` that holds its thresholds, `upper` or `sigma`.
        what: What its score is, in words.
    """

    name: str
    setting: str
    what: str


def tests_of(config: Config) -> tuple[Test, ...]:
    """The tests of the rule in `config` that have thresholds.

    Raises:
        ConfigError: The rule has none that the two settings hold.
    """
    takes = RULES[config.rule].takes
    if "upper" not in takes:
        able = ", ".join(name for name, rule in RULES.items() if "upper" in rule.takes)
        raise ConfigError("--rule", config.rule, f"one of {able}; {config.rule} has thresholds of its own")
    if "sigma" not in takes:
        return (Test("ratio", "upper", "max(g²) over its running mean"),)
    return Test("value", "upper", "L2 norm"), Test("jump", "sigma", "jump of the L2 norm, in widths of its range")


class Scores:
    """The scores of one test.

    Attributes:
        count: How many there were.
        largest: The largest of those above 0, in no order.
        extreme: The largest, and the words that say where it was.
    """

    def __init__(self) -> None:
        self.count = 0
        self.largest: list[float] = []
        self.extreme = 0.0, ""

    def add(self, score: float, name: str, step: RecordedStep) -> None:
        """Takes in one score, of checkpoint `name` in `step`."""
        self.count += 1
        if score <= 0.0:
            return
        if score > self.extreme[0]:
            self.extreme = score, f"{name}, rank {step.rank}, step {step.step}"
        if len(self.largest) <= MOST_EXCEEDING:
            heapq.heappush(self.largest, score)
        elif score > self.largest[0]:
            heapq.heapreplace(self.largest, score)


@dataclass
class Replayed:
    """What came of it.

    Attributes:
        steps: Steps that were counted.
        checks: Values in them.
        first: First-level anomalies.
        second: Second-level anomalies.
        left_out: Steps that were not counted, by the reason.
        places: Rank and checkpoint of all values that were counted.
        scores: Per test the scores of the values, if they were wanted.
    """

    steps: int = 0
    checks: int = 0
    first: int = 0
    second: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    places: set[tuple[int, str]] = field(default_factory=set)
    scores: dict[str, Scores] = field(default_factory=dict)

    @property
    def flagged(self) -> int:
        """Anomalies of either level."""
        return self.first + self.second


def replay(steps: Iterable[RecordedStep], config: Config, *, measure: bool = False) -> Replayed:
    """Judges `steps` as a training with `config` would have.

    Flagged and refused steps pass through the rules as they did in the training, which learn from their other values;
    they are not counted and have no scores. A training that begins at step 1 begins with new rules; one that resumes
    goes on with those it has.

    Args:
        steps: In the order in which each rank made them.
        config: The rule, its tiers and thresholds. Tiers that look at more than one checkpoint take no part.
        measure: Whether scores are kept.
    """
    done = Replayed(scores={test.name: Scores() for test in tests_of(config)} if measure else {})
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
    """The rules of one rank from its first step on."""

    def __init__(self, config: Config, done: Replayed) -> None:
        self._config, self._done = config, done
        self._judges = Detectors(config)
        self._scorers: dict[str, _Scorer] = {}

    def judge(self, step: RecordedStep, *, counts: bool) -> None:
        done = self._done
        for name, kind, value in step.values:
            level = self._judges.update(name, kind, value).verdict.level
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
        self._judges.end_step()


class _Scorer:
    """Scores the values of one checkpoint as the published tests of a rule do, and learns as they learn."""

    def __init__(self, config: Config, kind: str) -> None:
        names = {test.name for test in tests_of(config)}
        self._square = SilentCheckV3(config.upper, learn_errors=not config.refuses) if "ratio" in names else None
        judges_norm = "value" in names and (kind == GRADIENT or config.rule != "adaptive")
        self._norm = Threshold(config.upper, config.sigma) if judges_norm else None

    def scores(self, value: float) -> Iterator[tuple[str, float]]:
        """The scores of a finite value by the names of their tests, before it is learned."""
        if self._norm is not None:
            yield "value", value
            jump = self._norm.jump(value)
            if isfinite(jump):
                yield "jump", max(jump, 0.0)
            self._norm.update(value)
        if self._square is not None:
            square = value * value
            ratio = self._square.ratio(square)
            if isfinite(ratio):
                yield "ratio", ratio
            self._square.update(square)
