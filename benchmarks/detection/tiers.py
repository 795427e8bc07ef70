"""The package's tiers, each given what can be seen of a step."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from asd.confirmation import Allowance, has_fallen
from asd.tiers import FEATURES, Features, History, Ranks, Seal, Sealed, StateBound
from asd.tiers.kinds import KINDS
from asd.tiers.tail import Tails
from asd.verdict import Level
from benchmarks.detection.alarm import STATE, Alarm, Setup
from benchmarks.detection.schedule import BETA1, BETA2, CLIP, Record

__all__ = ["Bounds", "Hash", "Seals", "SecondLook", "Sites"]

SHARE_AGAIN = 0.01
"""Of the steps, at most, those that a second look makes again."""


class Sites:
    """The package's tiers on tensors: finite and adaptive at every site, and ranks against each other.

    The optimizer's input is judged as a training's guard does. With one rank that is the gradient of each weight, in
    the place of the site where it was computed; with several it is the mean over them, beside each rank's own gradient,
    and an alarm about it names no rank.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        kinds = ["B" if kind == "G" else kind for kind in setup.kinds]
        self.tails = [{symbol: Tails(kind) for symbol, kind in KINDS.items()} for _ in range(setup.ranks)]
        self.histories = [[History(kind, tails=tails[kind]) for kind in kinds] for tails in self.tails]
        self.compared = [Ranks(kind, setup.ranks) for kind in kinds]
        alone = setup.ranks == 1
        self.weight_at = {site: weight for weight, site in enumerate(setup.weights) if alone and site >= 0}
        kind = "W" if alone else "A"
        self.averaged = {
            weight: History(kind, tails=self.tails[0][kind])
            for weight in range(len(setup.weights))
            if weight not in self.weight_at.values()
        }

    def step(self, number: int, record: Record) -> Alarm:
        alarm = Alarm()
        averaged = [_features(row) for row in record.averaged]
        flagged, outliers = self._judge_sites(record, averaged, alarm)
        in_mean = self._judge_averaged(averaged, alarm)
        for tails in self.tails:
            for each in tails.values():
                each.refit()
        alarm.cause = self.cause(flagged, outliers) or ("unknown" if in_mean else "")
        if len(flagged | outliers) == 1:
            (alarm.suspect,) = flagged | outliers
        return alarm

    def _judge_sites(self, record: Record, averaged: Sequence[Features], alarm: Alarm) -> tuple[set[int], set[int]]:
        """The ranks that their own past or the other ranks speak against."""
        flagged: set[int] = set()
        outliers: set[int] = set()
        for place in range(len(self.setup.names)):
            seen = [_features(row) for row in record.features[:, place]]
            if place in self.weight_at:
                seen = [averaged[self.weight_at[place]]]
            compared = self.compared[place].update(seen) if self.setup.ranks > 1 else None
            for rank, features in enumerate(seen):
                own = self._judge(self.histories[rank][place], features, rank, place, alarm)
                other = compared[rank].level if compared is not None else Level.NORMAL
                if own is Level.ERROR:
                    flagged.add(rank)
                if other is Level.ERROR:
                    outliers.add(rank)
                alarm.add(max(own, other), rank, place)
        return flagged, outliers

    def _judge_averaged(self, averaged: Sequence[Features], alarm: Alarm) -> bool:
        """Whether there is a first-level anomaly in what the optimizer gets and no site shows."""
        errors = len(alarm.errors)
        for weight, history in self.averaged.items():
            rank, place = 0 if self.setup.ranks == 1 else -1, self.setup.place_of(weight)
            alarm.add(self._judge(history, averaged[weight], rank, place, alarm), rank, place)
        return len(alarm.errors) > errors

    @staticmethod
    def _judge(history: History, features: Features, rank: int, place: int, alarm: Alarm) -> Level:
        # Before it is learned: a suspicious output is, unlike a suspicious gradient.
        if _is_above(history, features):
            alarm.suspicious.append((rank, place))
        return history.update(features).level

    def comes_again(self, record: Record, again: Record, rank: int, place: int) -> bool:
        """Whether a step made again shows there what was suspicious; nothing is learned."""
        weight = place - len(self.setup.names)
        if weight >= 0:
            history, rows = self.averaged[weight], [each.averaged[weight] for each in (record, again)]
        else:
            at, history = self.weight_at.get(place, -1), self.histories[rank][place]
            rows = [each.averaged[at] if at >= 0 else each.features[rank, place] for each in (record, again)]
        # The same is as suspicious as it was, though the margins may have been fitted anew meanwhile.
        return not has_fallen(*map(_features, rows)) or _is_above(history, _features(rows[1]))

    def cause(self, flagged: set[int], outliers: set[int]) -> str:
        """Many ranks of which none differs from the others are no fault of a device, as the package says."""
        if outliers:
            return "hardware"
        return "software" if 2 * len(flagged) > self.setup.ranks > 1 else "unknown" if flagged else ""


class SecondLook:
    """The package's tiers on tensors, and a second run of a step with something suspicious, as `ASD_CONFIRM` makes it.

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
        alarm, may_be_again = self.sites.step(number, record), self.allowance.next_step()
        if alarm.suspicious and may_be_again:
            self.allowance.spend()
            self.made_again += 1
            alarm.made_again = True
            gone = [where for where in alarm.suspicious if not self.sites.comes_again(record, again, *where)]
            if gone and not alarm.errors:
                alarm.suspect, alarm.place = next((where for where in gone if where[0] >= 0), gone[0])
            alarm.errors += [where for where in gone if where not in alarm.errors]
            alarm.cause = "hardware" if gone else alarm.cause
        return alarm


def _features(row: Any) -> Features:
    largest, l2, mean, bad = row.tolist()
    return Features(largest, l2, mean, int(bad))


def _is_above(history: History, features: Features) -> bool:
    limits = history.second_limit()
    return not features.finite or any(not features[i] <= limits[feature] for i, feature in enumerate(FEATURES))


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
