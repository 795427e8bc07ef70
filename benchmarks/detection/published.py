"""The published rules, each given what can be seen of a step."""

from __future__ import annotations

from collections.abc import Callable

from asd.rules import Rule
from asd.verdict import Level
from benchmarks.detection.alarm import STATE, Alarm, Setup
from benchmarks.detection.schedule import Record

__all__ = ["Megatron", "Moving", "NotFinite", "PerSite", "Spam"]


class PerSite:
    """One rule for each rank and site of some kinds."""

    def __init__(self, setup: Setup, make: Callable[[], Rule], kinds: str, every: int = 1) -> None:
        # Sampling takes the first, then every so-maniest site, as the vendor's counter does.
        self.places = [i for i, kind in enumerate(setup.kinds) if kind in kinds][::every]
        self.rules = [[make() for _ in self.places] for _ in range(setup.ranks)]
        self.feature = self.rules[0][0].feature if self.places else ""

    def step(self, number: int, record: Record) -> Alarm:
        alarm = Alarm()
        for rank, rules in enumerate(self.rules):
            rows = record.features[rank]
            for place, rule in zip(self.places, rules, strict=True):
                largest, l2, _, bad = rows[place].tolist()
                value = float("nan") if bad else l2 if self.feature == "l2" else largest
                if self.feature == "max_square":
                    value *= value
                alarm.add(rule.update(value).level, rank, place)
        return alarm


class NotFinite:
    """NaN or infinity in any gradient."""

    def __init__(self, setup: Setup) -> None:
        self.places = [i for i, kind in enumerate(setup.kinds) if kind != "Y"]

    def step(self, number: int, record: Record) -> Alarm:
        alarm = Alarm()
        for rank, rows in enumerate(record.features):
            for place in self.places:
                if rows[place][3]:
                    alarm.add(Level.ERROR, rank, place)
        return alarm


class Moving:
    """A spike of one number of the run above its moving mean, in moving deviations."""

    def __init__(self, setup: Setup, number: str, deviations: float, keep: float, first: int = 20) -> None:
        self.number, self.deviations, self.keep, self.first = number, deviations, keep, first
        self.mean, self.square, self.count = 0.0, 0.0, 0

    def step(self, number: int, record: Record) -> Alarm:
        alarm, value = Alarm(), float(getattr(record, self.number))
        spread = max(self.square, 1e-16) ** 0.5
        spike = self.count >= self.first and value > self.mean + self.deviations * spread
        if value - value != 0.0 or spike:
            alarm.add(Level.ERROR, -1, STATE)
            if value - value != 0.0:
                return alarm
            value = self.mean + self.deviations * spread  # clipped, as ZClip does, so that it can't blunt the rule
        keep = min(self.keep, self.count / (self.count + 1))
        self.square = keep * self.square + (1 - keep) * (value - self.mean) ** 2
        self.mean = keep * self.mean + (1 - keep) * value
        self.count += 1
        return alarm


class Spam:
    """Any element of the averaged gradient with g² > 5000 v."""

    def __init__(self, setup: Setup) -> None: ...

    def step(self, number: int, record: Record) -> Alarm:
        alarm = Alarm()
        if record.spikes or record.norm - record.norm != 0.0:
            alarm.add(Level.ERROR, -1, STATE)
        return alarm


class Megatron:
    """Loss or gradient norm not finite, or the norm above 10 times the largest of the first 100 steps."""

    def __init__(self, setup: Setup) -> None:
        self.largest, self.count = 0.0, 0

    def step(self, number: int, record: Record) -> Alarm:
        alarm = Alarm()
        bad = record.norm - record.norm != 0.0 or record.loss - record.loss != 0.0
        if bad or (self.count >= 100 and record.norm > 10 * self.largest):
            alarm.add(Level.ERROR, -1, STATE)
        elif self.count < 100:
            self.largest = max(self.largest, record.norm)
        self.count += 1
        return alarm
