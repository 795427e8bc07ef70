"""Base class of the parts of a training, the record of one step, and the problems that parts report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from asd.diagnosis.attribution import Attribution
from asd.event import Event
from asd.judge.monitor import Monitor
from asd.operators.gate.gate import Gate
from asd.operators.gate.table import Table
from asd.operators.private.boundary import listen
from asd.operators.ranks.exchange import Exchange
from asd.rules.reading import Reading
from asd.rundir.manifest import Health
from asd.verdict import Level, Verdict


class Part:
    """Part of a training; `TrainingWatch` calls it in its turn of each step."""

    monitor: Monitor  # judges, and publishes events
    table: Table  # the slots
    gate: Gate  # this training's share of the table
    ranks: Exchange  # the ranks

    def serve(self, monitor: Monitor, table: Table, gate: Gate, ranks: Exchange) -> None:
        """Sets the objects that this part works with from now on."""
        self.monitor, self.table, self.gate, self.ranks = monitor, table, gate, ranks

    def accuse(
        self, step: StepRecord, health: Health, *, rule: str, where: str, reason: str, wrong: int, healed: bool = False
    ) -> None:
        """Publishes a first-level event of this rank's device, which no value of the training showed.

        `where` names the work with wrong results, `wrong` is their number, and `healed` tells that they do no harm.
        """
        event = self.monitor.reports.state_anomaly(step.number, where, Verdict(Level.ERROR, reason, float(wrong), 0.0))
        event = replace(event, rule=rule, key=rule, feature="wrong_results", refused=step.refused, healed=healed)
        step.events.append(self.monitor.publish(event))
        step.fatal = step.fatal or event
        health.proofs.clear()
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
    """Record of the step that was just run."""

    number: int  # of the step, from 1
    outputs: Any  # those of its rerun, if there was one that counts
    scale: float  # its loss scale
    refused: bool  # whether its update was refused; that of the rerun, if there was one
    readings: Sequence[Reading] | None = None  # of the rerun if there was one; None until they are read
    again: bool = False  # whether there was a rerun that counts
    withheld: str = ""  # reason why an update was refused because of an earlier step; else empty
    lost: str = ""  # reason why an update was refused for good without a first-level anomaly on any rank; else empty
    vanished: Sequence[Reading] = ()  # readings that were suspicious in the first run and not in the rerun
    elsewhere: bool = False  # whether any rank has vanished readings
    attribution: Attribution | None = None  # to ranks with vanished readings, or to blame for a refusal, if known
    events: list[Event] = field(default_factory=list)  # events found so far
    fatal: Event | None = None  # the first of them at first level
    damage: Event | None = None  # event that reports damaged weights, where refusing an update no longer helps
    shown: float = 0.0  # loss scale that was not given but shows in its values, else 0; in force where `scale` is equal
    among: str = ""  # which of several steps of one call it is, in words; empty where the call made one
    is_link: bool = False  # whether a reduction delivered wrong sums, which no rerun on this device explains

    @property
    def broken(self) -> list[str]:
        """The names in the first-level anomalies of this rank."""
        return [each.checkpoint for each in self.events if each.kind == "anomaly" and each.level is Level.ERROR]
