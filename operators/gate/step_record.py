"""What the parts of a training share: whom they work for, the one record of a step, and the problems they report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from asd.event import Event
from asd.operators.private.boundary import listen
from asd.operators.ranks.exchange import Exchange
from asd.operators.table.gate import Gate
from asd.operators.table.slots import Table
from asd.rules.diagnosis.attribution import Attribution
from asd.rules.readings.reading import Reading
from asd.rules.step.monitor import Monitor
from asd.rundir.manifest import Health
from asd.verdict import Level, Verdict


class Part:
    """A part of a training; what it does in a step is told to `TrainingWatch`, which calls it in its turn.

    Attributes:
        monitor: Judges, and publishes events.
        table: The slots.
        gate: What this training has of the table.
        ranks: The ranks.
    """

    monitor: Monitor
    table: Table
    gate: Gate
    ranks: Exchange

    def serve(self, monitor: Monitor, table: Table, gate: Gate, ranks: Exchange) -> None:
        """Says for whom it works from now on."""
        self.monitor, self.table, self.gate, self.ranks = monitor, table, gate, ranks

    def accuse(self, step: StepRecord, health: Health, *, rule: str, where: str, reason: str, wrong: int) -> None:
        """Publishes a first-level event of this rank's device, which no value of the training showed.

        `where` is the work that came out wrong, and `wrong` how many results did.
        """
        event = self.monitor.reports.state_anomaly(step.number, where, Verdict(Level.ERROR, reason, float(wrong), 0.0))
        event = replace(event, rule=rule, key=rule, feature="wrong_results", refused=step.refused)
        step.events.append(self.monitor.publish(event))
        step.fatal = step.fatal or event
        health.add(event)


class Problems(Part):
    """Problems of one `StepMonitor` that may come back in every step."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        listen(self)

    def once(self, reason: str) -> bool:
        """Reports a problem; the second time and later it is only counted.

        Returns:
            Whether it was the first time.
        """
        if reason in self._told:
            if hasattr(self, "monitor"):
                self.monitor.status.problems += 1
            return False
        self._told.add(reason)
        if hasattr(self, "monitor"):  # else no training has begun
            self.monitor.problem(reason)
        return True


@dataclass(slots=True)
class StepRecord:
    """What is known of the step that has just been made.

    Attributes:
        number: Which step, from 1.
        outputs: What it returned; of its second run, if there was one that counts.
        scale: Its loss scale.
        refused: Whether its update was refused; that of the second run, if there was one.
        readings: What its checkpoints saw, of the second run if there was one; None as long as nobody has read them.
        again: Whether there was a second run that counts.
        withheld: Why an update was refused, where an earlier step is the reason; else empty.
        lost: Why an update was refused for good though no rank has a first-level anomaly; else empty.
        vanished: The readings that were suspicious in the first run and not in the second.
        elsewhere: Whether any rank has such readings.
        attribution: Whose they are, or who is to blame for a refusal; None where nobody is known.
        events: What was found so far.
        fatal: The first of them that is of first level.
        rescaled: Whether its values showed a loss scale that nobody had told, for which its update may be refused.
        damage: The one that says that the weights are damaged already: refusing an update mends nothing then.
    """

    number: int
    outputs: Any
    scale: float
    refused: bool
    readings: Sequence[Reading] | None = None
    again: bool = False
    withheld: str = ""
    lost: str = ""
    vanished: Sequence[Reading] = ()
    elsewhere: bool = False
    attribution: Attribution | None = None
    events: list[Event] = field(default_factory=list)
    fatal: Event | None = None
    damage: Event | None = None
    rescaled: bool = False

    @property
    def broken(self) -> list[str]:
        """The names in the first-level anomalies of this rank."""
        return [each.checkpoint for each in self.events if each.kind == "anomaly" and each.level is Level.ERROR]
