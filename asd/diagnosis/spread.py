"""Distance of two runs of one step on one device, where healthy devices do not repeat their last bits."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any, NamedTuple

from asd.rules.reading import AVERAGED, SCORES, Reading

CAP = 2.0**-10
"""Nothing is learned beyond it. A fault that broke a limit is far beyond: it changed a value by a factor."""
_STEADY, _SURE = 2.0**-16, 3
"""A value that was never further apart, where last bits vary in so many steps, does not come to `CAP` by chance."""
LOSS = "loss"
_FACTOR, _FLOOR, _LEAST = 16.0, 2.0**-22, 5e-324  # the floor is two last places of float32
_PEERS = 16.0  # by so much a checkpoint may exceed the others of its kind, else a flaky core would teach its own limit
_SMALL = 2.0**-10  # of the largest value of its kind; a smaller one may be what rounding leaves of others


class StepResult(NamedTuple):
    """Result of one run of a step."""

    loss: tuple[float, ...]  # the numbers of its first output; empty when it has none
    readings: tuple[Reading, ...]  # readings of the checkpoints, in backward order

    @classmethod
    def of(cls, loss: Iterable[float], readings: Iterable[Reading]) -> StepResult:
        """Makes a result from readings in any order, without means over the ranks, which depend on other ranks."""
        own = (reading for reading in readings if reading.kind != AVERAGED)
        return cls(tuple(loss), tuple(sorted(own, key=lambda reading: reading.order)))

    @classmethod
    def from_json(cls, text: str | bytes) -> StepResult:
        """Returns the result that `json.dumps` wrote, bit for bit."""
        loss, readings = json.loads(text)
        return cls(tuple(loss), tuple(Reading(*reading) for reading in readings))


class Spread:
    """Distances of healthy runs of one step, by checkpoint; where none was ever seen, bits count.

    Attributes:
        most: The largest distance that was learned; NaN before any two runs were compared.
        wild: Checkpoints that were beyond `CAP` in healthy runs, as the gradient of a bias before a norm, which is what
            rounding leaves of 0. They are not compared.
    """

    def __init__(self) -> None:
        self._levels: dict[str, float] = {}  # usual distance of each kind
        self._apart: dict[str, dict[str, float]] = {}  # by kind, then by checkpoint
        self.most, self.wild = math.nan, set[str]()
        self._learned = Counter[str]()  # steps, by checkpoint

    def learn(self, one: StepResult, other: StepResult) -> str:
        """Learns from two runs of a step on a healthy device, up to `CAP`.

        Returns:
            The first difference if most checkpoints are beyond it, so that nothing is learned; else empty.
        """
        found = list(distances(one, other))
        far = {name: words for _, name, size, words in found if size > CAP}
        if 2 * len(far) > len(found):
            return next(iter(far.values()))
        for kind, name, size, _ in found:
            if size <= CAP:
                sizes = self._apart.setdefault(kind, {})
                sizes[name] = max(size, sizes.get(name, 0.0))
                self._learned[name] += 1
        self.wild = self.wild - {name for _, name, _, _ in found} | far.keys()
        self._levels |= {kind: median(sizes.values()) for kind, sizes in self._apart.items()}
        self.most = max(self.to_json()["kinds"].values(), default=math.nan)
        return ""

    def surprise(self, one: StepResult, other: StepResult) -> str:
        """Returns the first difference beyond `CAP` at a checkpoint that was steady so far, but for the loss."""
        for kind, name, size, words in distances(one, other):
            known = math.inf if name in self.wild or kind == LOSS else self._apart.get(kind, {}).get(name, math.inf)
            if size > CAP and known <= _STEADY and (not self.most > 0 or self._learned[name] >= _SURE):
                return words
        return ""

    @staticmethod
    def is_rounding(one: StepResult, other: StepResult) -> bool:
        """Returns whether two runs are nowhere further apart than last bits of any device, `CAP`."""
        return all(size <= CAP for _, _, size, _ in distances(one, other))

    def to_json(self) -> dict[str, Any]:
        """Returns the largest distance of each kind and the wild checkpoints, for other ranks."""
        return {"kinds": {kind: max(sizes.values()) for kind, sizes in self._apart.items()}, "wild": list(self.wild)}

    def with_ranks(self, told: Iterable[Mapping[str, Any]]) -> Spread:
        """Returns a spread that knows `to_json` of other ranks too."""
        found = Spread()
        found._apart, found._levels, found.wild, found.most = self._apart, dict(self._levels), set(self.wild), self.most
        for each in told:
            found._levels |= {kind: max(size, found._levels.get(kind, 0.0)) for kind, size in each["kinds"].items()}
            found.wild |= set(each["wild"])
            found.most = max([*each["kinds"].values(), 0.0 if math.isnan(found.most) else found.most])
        return found

    def limit(self, kind: str, name: str) -> float:
        """Returns the largest distance at a checkpoint that healthy runs explain."""
        if name in self.wild or not self.most > 0:
            return math.inf if name in self.wild else 0.0
        level = max(_FLOOR, self._levels.get(kind, max(self._levels.values())))
        return min(CAP, _FACTOR * max(level, min(self._apart.get(kind, {}).get(name, 0.0), _PEERS * level)))

    def difference(self, one: StepResult, other: StepResult, *, with_loss: bool = True) -> str:
        """Returns the first difference in backward order that healthy runs do not explain, as text; empty for none.

        A peer's loss may be an average over other batches: pass `with_loss=False`.
        """
        for kind, name, size, words in distances(one, other):
            if size > self.limit(kind, name) and (with_loss or kind != LOSS):
                return words
        return ""


def distances(one: StepResult, other: StepResult) -> Iterator[tuple[str, str, float, str]]:
    """Yields kind, checkpoint, relative distance and both values as text, in backward order, the loss at the end."""
    ours, theirs = ({reading.checkpoint: reading for reading in each.readings} for each in (one, other))
    top: dict[str, float] = {}  # of each kind, as only gradients of activations contain the loss scale
    for each in (*one.readings, *other.readings):
        top[each.kind] = max(abs(each.value) if each.finite else 0.0, top.get(each.kind, 0.0))
    for name in ours | theirs:
        here, there = ours.get(name), theirs.get(name)
        kind = (here or theirs[name]).kind
        if here is not None and there is not None:
            size = _apart(here.value, there.value, top[kind])
            if kind in SCORES and max(here.value, there.value) <= 1:  # what is left of rounding has no size
                size = min(size, _LEAST)
            yield kind, name, size, f"{name} is {here.value:.9g} and {there.value:.9g}"
        elif kind not in SCORES:  # a suspected rank checks more than its peers
            yield kind, name, math.inf, f"{name} was checked in one run only"
    if one.loss and other.loss:
        most = max((abs(each) for each in (*one.loss, *other.loss) if math.isfinite(each)), default=0.0)
        sizes = [_apart(here, there, most) for here, there in zip(one.loss, other.loss, strict=False)]
        yield LOSS, "", max(sizes) if len(one.loss) == len(other.loss) else math.inf, "the loss differs"


def _apart(here: float, there: float, top: float) -> float:
    """Returns how far two numbers are apart, relative to the larger one, or to `top` if small; 0 for equal bits."""
    if _bits(here) == _bits(there):
        return 0.0
    larger = max(abs(here), abs(there), _LEAST)
    size = abs(here - there) / (larger if larger >= _SMALL * top else top)
    return max(size, _LEAST) if math.isfinite(size) else math.inf


def _bits(value: float) -> object:
    return "nan" if math.isnan(value) else (value, math.copysign(1, value))
