"""The health of the steps between two checkpoints, as one rank has seen it."""

from __future__ import annotations

from dataclasses import dataclass

from asd.event import Event
from asd.records import Count
from asd.verdict import Level

__all__ = ["MOST_FLAWS", "Flaw", "Health"]

MOST_FLAWS = 100
"""So many anomalies are listed; the rest is only counted."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """One first-level anomaly before a checkpoint.

    Attributes:
        step: Training step, from 1.
        checkpoint: Name of the checked site.
        value: The feature value; may be `inf` or `nan`.
        refused: Whether the update was kept away from the weights.
        event: Id of the event.
    """

    step: Count
    checkpoint: str
    value: float
    refused: bool
    event: str


class Health:
    """What happened since the last checkpoint, and since when the weights can't be trusted.

    Attributes:
        tainted_from: The first step whose weights may have a first-level anomaly in them; 0 for none.
        flaws: First-level anomalies since the last checkpoint, at most 100.
        count: How many these were.
        problems: Problems of the detector since the last checkpoint.
    """

    def __init__(self, tainted_from: int = 0) -> None:
        self.tainted_from = tainted_from
        self.flaws: list[Flaw] = []
        self.count = 0
        self.problems = 0

    def add(self, event: Event) -> None:
        """Takes in one event of this rank."""
        if event.kind == "problem":
            self.problems += 1
        if event.kind != "anomaly" or event.level is not Level.ERROR:
            return
        self.count += 1
        if len(self.flaws) < MOST_FLAWS:
            self.flaws.append(Flaw(event.step, event.checkpoint, event.value, event.refused, event.id))
        if not event.refused:
            self.taint(event.step)

    def taint(self, step: int) -> None:
        """The weights can't be trusted from `step` on."""
        self.tainted_from = self.tainted_from or step

    def begin_next(self) -> None:
        """Begins anew after a checkpoint; weights that are tainted stay so."""
        self.flaws, self.count, self.problems = [], 0, 0

    def begin_at(self, tainted_from: int) -> None:
        """Begins anew with the weights of a checkpoint, tainted from that step on; 0 if they are not."""
        self.tainted_from = tainted_from
        self.begin_next()
