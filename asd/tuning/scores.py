"""What the published tests of a rule compare with their thresholds, and how it is spread."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from math import floor, isfinite, log2
from typing import Final, NamedTuple

from asd.config import Config
from asd.errors import ConfigError
from asd.rules import RULES, SilentCheckV3, Threshold
from asd.rules.readings.features import Features
from asd.rules.readings.reading import GRADIENT
from asd.tuning.budget import MOST_EXCEEDING

__all__ = ["BINS", "Extreme", "Scorer", "Scores", "Test", "tests_of"]

BINS: Final = 4
"""Bins of the histogram per factor of two."""


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


_JUMP = "jump of the {}, in widths of its range"
_RATIO = Test("ratio", "upper", "max(g²) over its running mean")


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
        return (_RATIO,)
    what = "max(|g|)" if _judges_largest(config) else "L2 norm"
    return Test("value", "upper", what), Test("jump", "sigma", _JUMP.format(what))


def _judges_largest(config: Config) -> bool:
    """Whether `asd.rules.Adaptive` judges: the rule without its tier."""
    return config.rule == "adaptive" and "adaptive" not in config.active_tiers


class Scorer:
    """Scores the values of one checkpoint as the published tests of a rule do, and learns as they learn.

    Args:
        config: The rule and its thresholds, which decide what is learned.
        kind: `Y`, `B` or `W`.
    """

    def __init__(self, config: Config, kind: str) -> None:
        names = {test.name for test in tests_of(config)}
        self._square = SilentCheckV3(config.upper, learn_errors=not config.refuses) if "ratio" in names else None
        judges_norm = "value" in names and (kind == GRADIENT or "adaptive" not in config.active_tiers)
        self._norm = Threshold(config.upper, config.sigma) if judges_norm else None
        self._largest = _judges_largest(config)

    def scores(self, features: Features) -> Iterator[tuple[str, float]]:
        """The scores of a finite tensor by the names of their tests, before it is learned."""
        if self._norm is not None:
            value = features.max_abs if self._largest else features.l2
            yield "value", value
            jump = self._norm.jump(value)
            if isfinite(jump):
                yield "jump", max(jump, 0.0)
            self._norm.update(value)
        if self._square is not None:
            square = features.max_abs * features.max_abs
            ratio = self._square.ratio(square)
            if isfinite(ratio):
                yield "ratio", ratio
            self._square.update(square)


class Extreme(NamedTuple):
    """The largest score of one checkpoint."""

    score: float
    checkpoint: str
    rank: int
    step: int


class Scores:
    """The scores of one test.

    Attributes:
        count: How many there were.
        largest: The largest of those above 0, in no order.
        histogram: Per kind of tensor and bin of log2(score) how many there were.
        extremes: Per rank and checkpoint its largest score.
    """

    def __init__(self) -> None:
        self.count = 0
        self.largest: list[float] = []
        self.histogram: Counter[tuple[str, int]] = Counter()
        self.extremes: dict[tuple[int, str], Extreme] = {}

    def add(self, score: float, kind: str, checkpoint: str, rank: int, step: int) -> None:
        """Takes in one score."""
        self.count += 1
        if score <= 0.0:
            return
        self.histogram[kind, floor(BINS * log2(score))] += 1
        if len(self.largest) <= MOST_EXCEEDING:
            heapq.heappush(self.largest, score)
        elif score > self.largest[0]:
            heapq.heapreplace(self.largest, score)
        before = self.extremes.get((rank, checkpoint))
        if before is None or score > before.score:
            self.extremes[rank, checkpoint] = Extreme(score, checkpoint, rank, step)

    def drivers(self, most: int = 3) -> list[Extreme]:
        """The checkpoints with the largest scores, the largest first."""
        return sorted(self.extremes.values(), reverse=True)[:most]
