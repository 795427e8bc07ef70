"""The package as it judges in a training, each rank by a `Monitor` of its own, and its checks of the state."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from asd import Config, Level
from asd.origin import Origin
from asd.rules.diagnosis.attribution import Attribution, whose_fault
from asd.rules.history import StateBound
from asd.rules.history.seal import Seal, Sealed
from asd.rules.readings.features import Features
from asd.rules.readings.reading import AVERAGED, OF_ALL_RANKS, Reading
from asd.rules.step.confirmation import Allowance, blame, vanished
from asd.rules.step.monitor import Monitor
from benchmarks.detection.alarm import STATE, Alarm, Setup
from benchmarks.detection.schedule import BETA1, BETA2, CLIP, Record

__all__ = ["Bounds", "Hash", "Seals", "SecondLook", "Sites"]

SHARE_AGAIN = 0.01
"""Of the steps, at most, those that a second look makes again."""
_CONFIG = {
    "NPU_ASD_ENABLE": "1", "ASD_RULE": "adaptive", "ASD_TIERS": "finite,adaptive,ranks", "ASD_ON_ANOMALY": "skip"
}  # fmt: skip


class Sites:
    """Finite and adaptive at every site, and ranks against each other, as a training with `ASD_RULE=adaptive` has them.

    The optimizer's input is judged as a training's guard does. With one rank that is the gradient of each weight, in
    the place of the site where it was computed; with several it is the mean over them, beside each rank's own gradient,
    and an alarm about it names no rank.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        config = Config.from_env(_CONFIG)
        self.monitors = [Monitor(config, Origin("benchmark", rank, "host", str(rank))) for rank in range(setup.ranks)]
        alone = setup.ranks == 1
        weight_at = {site: weight for weight, site in enumerate(setup.weights) if alone and site >= 0}
        sites = [(i, weight_at.get(i, -1), "B" if kind == "G" else kind) for i, kind in enumerate(setup.kinds)]
        others = [weight for weight in range(len(setup.weights)) if weight not in weight_at.values()]
        kind = "W" if alone else AVERAGED
        self._places = [*sites, *((setup.place_of(weight), weight, kind) for weight in others)]

    def __getstate__(self) -> dict[str, Any]:
        return {"setup": self.setup, "states": [monitor.state() for monitor in self.monitors]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["setup"])  # type: ignore[misc]
        for monitor, saved in zip(self.monitors, state["states"], strict=True):
            monitor.restore(saved)

    def step(self, number: int, record: Record) -> Alarm:
        readings = self.readings(record)
        return self.judge(number, readings, self.suspicious(readings), [() for _ in readings])

    def readings(self, record: Record) -> list[list[Reading]]:
        """By rank, what its checkpoints saw."""
        averaged = [_features(row) for row in record.averaged]
        ranks: list[list[Reading]] = []
        for rank in range(self.setup.ranks):
            readings = []
            for place, weight, kind in self._places:
                features = averaged[weight] if weight >= 0 else _features(record.features[rank, place])
                largest, l2, mean, bad, _ = features
                readings.append(Reading(str(place), largest, l2, bad, 1, place, mean_abs=mean, kind=kind))
            ranks.append(readings)
        return ranks

    def suspicious(self, ranks: Sequence[Sequence[Reading]]) -> list[tuple[int, int]]:
        """Rank and place of each reading beyond its second-level limits."""
        return [
            (-1 if reading.kind in OF_ALL_RANKS else rank, int(reading.checkpoint))
            for rank, (monitor, readings) in enumerate(zip(self.monitors, ranks, strict=True))
            for reading in (readings if rank == 0 else [each for each in readings if each.kind not in OF_ALL_RANKS])
            if monitor.judges.suspicion(reading, 1.0) is not None
        ]

    def judge(
        self,
        number: int,
        ranks: Sequence[Sequence[Reading]],
        suspicious: list[tuple[int, int]],
        gone: Sequence[Sequence[Reading]],
    ) -> Alarm:
        """What the monitors say of a step; `gone` did not come again when it was made a second time."""
        attribution = self._blame_vanished(gone) if any(gone) else self._blame(ranks)
        seen = self._seen_by_ranks(ranks)
        found: list[tuple[int, int, Level]] = []
        for rank, (monitor, readings) in enumerate(zip(self.monitors, ranks, strict=True)):
            outcome = monitor.judge(
                number + 1, readings, attribution=attribution, ranks=seen, refused=attribution is not None or any(gone),
                vanished=gone[rank],
            )  # fmt: skip
            for event in (each for each in outcome.events if each.kind == "anomaly"):
                place = int(event.checkpoint)
                of_all = self.setup.ranks > 1 and place >= len(self.setup.names)
                if not of_all or rank == 0:
                    found.append((place, -1 if of_all else rank, event.level))
        alarm = Alarm(suspicious=suspicious)
        for place, rank, level in sorted(found, key=lambda each: each[0]):
            alarm.add(level, rank, place)
        self._name(alarm, attribution, any(gone))
        return alarm

    def _blame(self, ranks: Sequence[Sequence[Reading]]) -> Attribution | None:
        """Whose it was, as the ranks tell one another in a step that the gate refuses; None in one that it does not."""
        told = [
            [monitor.seen(readings, averaged=averaged) for averaged in (False, True)]
            for monitor, readings in zip(self.monitors, ranks, strict=True)
        ]
        if not any(each.broken for both in told for one in both for each in one.values()):
            return None
        return whose_fault(dict(enumerate(own for own, _ in told)), lambda: dict(enumerate(mean for _, mean in told)))

    @staticmethod
    def _blame_vanished(gone: Sequence[Sequence[Reading]]) -> Attribution | None:
        def first(readings: Sequence[Reading], of_all: bool) -> str:
            return next((each.checkpoint for each in readings if (each.kind in OF_ALL_RANKS) is of_all), "")

        return blame([(first(readings, False), first(readings, True)) for readings in gone])

    def _seen_by_ranks(self, ranks: Sequence[Sequence[Reading]]) -> dict[str, list[Features]] | None:
        if self.setup.ranks == 1:
            return None
        return {
            together[0].checkpoint: [Features(r.max_abs, r.l2, r.mean_abs, r.non_finite) for r in together]
            for together in zip(*ranks, strict=True)
        }

    def _name(self, alarm: Alarm, attribution: Attribution | None, looked_again: bool) -> None:
        """Says who is named and why, as the package does: what all ranks show is no fault of a device."""
        if not alarm.errors:
            return
        own = {rank for rank, _ in alarm.errors if rank >= 0}
        if attribution is not None and attribution.origin is not None:
            alarm.suspect = attribution.origin
        elif len(own) == 1:
            (alarm.suspect,) = own
        compared = self.setup.ranks > 1 and attribution is not None and attribution.origin is not None
        if looked_again or compared or (attribution is None and own):
            alarm.cause = "hardware"
        else:
            alarm.cause = "software" if 2 * len(own) > self.setup.ranks > 1 else "unknown"


class SecondLook:
    """The same with a second run of a step that has something suspicious, as the option `confirm` makes it.

    Attributes:
        made_again: Steps that were made again.
    """

    def __init__(self, setup: Setup) -> None:
        self.sites = Sites(setup)
        self.allowance = Allowance(SHARE_AGAIN)
        self.made_again = 0

    def step(self, number: int, record: Record, again: Record) -> Alarm:
        """Judges a step.

        Args:
            number: From 0.
            record: What was seen of it.
            again: What is seen of it when it is made once more.
        """
        sites, first, may_be_again = self.sites, self.sites.readings(record), self.allowance.next_step()
        suspicious = sites.suspicious(first)
        if not suspicious or not may_be_again:
            return sites.judge(number, first, suspicious, [() for _ in first])
        self.allowance.spend()
        self.made_again += 1
        second = sites.readings(again)
        gone = [
            vanished(*runs, lambda each, monitor=monitor: monitor.judges.suspicion(each, 1.0) is not None)
            for monitor, *runs in zip(sites.monitors, first, second, strict=True)
        ]
        # Where the second run is refused too, what is wrong in that one counts.
        refused = any(
            monitor.judges.is_broken(each, 1.0)
            for monitor, readings in zip(sites.monitors, second, strict=True)
            for each in readings
        )
        alarm = sites.judge(number, second, suspicious, [() for _ in gone] if refused else gone)
        alarm.made_again = True
        return alarm


def _features(row: Any) -> Features:
    largest, l2, mean, bad = row.tolist()
    return Features(largest, l2, mean, int(bad))


class Bounds:
    """The package's bounds on weights and the optimizer's state."""

    def __init__(self, setup: Setup) -> None:
        self.bounds = [StateBound() for _ in range(setup.ranks)]

    def step(self, number: int, record: Record) -> Alarm:
        alarm = Alarm(cause="hardware")  # a state that changes by itself
        largest = min(record.norm, CLIP)  # no element of a gradient is larger than its norm
        growth = {"max_m": (1 - BETA1) * largest, "max_v": (1 - BETA2) * largest**2} if isfinite(largest) else None
        for rank, bound in enumerate(self.bounds):
            m, v, weight, least = record.bounds[rank].tolist()
            values = {"max_m": m, "max_v": v, "max_weight": weight, "min_v": least}
            alarm.add(bound.update(values, growth).level, rank, STATE)
        return alarm


class Seals:
    """The package's seal on weights and the optimizer's state between two steps."""

    def __init__(self, setup: Setup) -> None:
        self.seals = [Seal() for _ in range(setup.ranks)]

    def step(self, number: int, record: Record) -> Alarm:
        alarm = Alarm(cause="hardware")  # a state that changes by itself
        if number == 0:
            return alarm  # nothing was left by a step before
        for rank, seal in enumerate(self.seals):
            # Which blocks differ is what was recorded of the hashes, and all that a seal looks at.
            rows = {str(tensor): row for tensor, row in enumerate(record.blocks[rank].tolist()) if row[1]}
            after = {name: Sealed(0, (0,) * size) for name, (_, size) in rows.items()}
            before = {name: Sealed(0, (1,) * bad + (0,) * (size - bad)) for name, (bad, size) in rows.items()}
            alarm.add(seal.update(number, after, before).level, rank, STATE)
        return alarm


class Hash:
    """The package's weight hash, compared over ranks every so many steps."""

    def __init__(self, setup: Setup, every: int) -> None:
        self.every = every

    def step(self, number: int, record: Record) -> Alarm:
        alarm = Alarm(cause="hardware")
        if record.odd != -1 and (number + 1) % self.every == 0:
            alarm.add(Level.ERROR, max(record.odd, -1), STATE)
        return alarm
