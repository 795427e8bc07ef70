"""What a detector of the benchmark is given before the first step, and what it says of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from asd.verdict import Level
from benchmarks.detection.schedule import Record

__all__ = ["STATE", "Alarm", "Detector", "Setup"]

STATE = -1
"""The place of an alarm about weights or the optimizer's state, or about the run as a whole."""


class Setup(NamedTuple):
    """What a detector knows before the first step.

    Attributes:
        names: Names of the sites, in order of execution.
        kinds: Their kinds, `Y`, `B`, `W` or `G`.
        ranks: Number of ranks.
        weights: Of each weight the site of its gradient, -1 where that is none.
    """

    names: list[str]
    kinds: list[str]
    ranks: int
    weights: list[int]

    def place_of(self, weight: int) -> int:
        """The place of an alarm about the averaged gradient of a weight: after all sites."""
        return len(self.names) + weight


@dataclass
class Alarm:
    """What a detector says of one step.

    Attributes:
        errors: Rank and place of each first-level alarm; the rank is -1 when it can't be told.
        warnings: Rank and place of each second-level alarm.
        suspicious: Rank and place of each of either level above its second-level limit, which a second look is about.
        made_again: Whether the step was made again.
        suspect: Rank that is named; -1 for none.
        place: Place that is named.
        cause: `hardware`, `software`, `data` or `unknown`; empty when the detector does not tell.
    """

    errors: list[tuple[int, int]] = field(default_factory=list)
    warnings: list[tuple[int, int]] = field(default_factory=list)
    suspicious: list[tuple[int, int]] = field(default_factory=list)
    made_again: bool = False
    suspect: int = -1
    place: int = STATE
    cause: str = ""

    def add(self, level: Level, rank: int, place: int) -> None:
        """Takes in a verdict; the first error names rank and place."""
        if level is Level.ERROR:
            if not self.errors:
                self.suspect, self.place = rank, place
            self.errors.append((rank, place))
        elif level is Level.WARNING:
            self.warnings.append((rank, place))


class Detector(Protocol):
    """Judges one step after the other; it is copied by pickling."""

    def step(self, number: int, record: Record) -> Alarm:
        """Judges a step."""
