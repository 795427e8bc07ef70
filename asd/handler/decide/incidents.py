"""The sum of a device's strikes: those that a replay has proven count each, unclear ones count once per incident.

A strike is unclear where its replay was `undetermined`, or its update was applied, so that no replay was made. Unclear
strikes are one incident where one of these holds:

| | |
|---|---|
| their events say so | by the field `incident` |
| in a row | of one run, within `ROW_STEPS` steps or `ROW_SECONDS` of the one before |
| at the same data | in the same steps of the job, in any attempt, or with the same finite value at the same place |

A row that goes on counts again after `INCIDENT_SECONDS`.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from asd.handler.model.policy import INCIDENT_SECONDS, ROW_SECONDS, ROW_STEPS, Policy


class Strike(NamedTuple):
    """One step in which a device was at fault."""

    n: int  # its number
    device: int  # number of the device
    run: str  # the attempt of the job
    job: str
    step: int  # negative where it is not known
    time: float  # seconds since the epoch
    counts: bool  # by now, or else it waits
    proven: bool  # whether a replay proved that it is hardware
    unclear: bool  # whether no replay can attribute it
    incident: str  # id of the event that began it, as far as its event knows
    rule: str  # what found it
    checkpoint: str  # where
    value: float | None  # the value there; None where it is no number


class StrikeCount(NamedTuple):
    """Number and score of a device's strikes that count."""

    counting: int  # incidents in the window that are settled or confirmed, and not revoked
    waiting: int  # incidents in the window that may still turn out to be one of many
    score: float = 0.0  # sum of the weights of counting and earlier strikes, see `Policy.weight`

    @property
    def strikes(self) -> int:
        """The number that every program shows."""
        return self.counting + self.waiting

    def is_enough(self, strikes: int, *, waiting: bool = False) -> bool:
        """Returns whether they reach `strikes`, the number that isolates a device; with waiting ones on request."""
        return max(self.counting, self.score) + (self.waiting if waiting else 0) >= strikes


class Incident:
    """Strikes of one device that count once, the earliest first."""

    def __init__(self, first: Strike) -> None:
        self.strikes: list[Strike] = []
        self._rows: dict[str, tuple[Strike, Strike]] = {}  # the first and the last strike of each run
        self.named: set[str] = set()  # ids of incidents in the events of these
        self.unclear = False  # whether one of its strikes is
        self.add(first)

    def add(self, strike: Strike) -> None:
        """Adds a strike."""
        self.strikes.append(strike)
        self._rows[strike.run] = self._rows.get(strike.run, (strike,))[0], strike
        self.named = {each.incident for each in self._ends()}
        self.unclear |= strike.unclear

    def goes_on_with(self, strike: Strike) -> bool:
        """Returns whether a strike that is not earlier belongs to this incident."""
        first, last = self._rows.get(strike.run) or (self.strikes[0], self.strikes[-1])
        if first.proven or strike.proven:
            return False
        goes_on = strike.time - first.time < INCIDENT_SECONDS
        if strike.incident in self.named:
            return goes_on
        if not (last.unclear or strike.unclear) or min(last.step, strike.step) <= 0:
            return False
        in_a_row = abs(strike.step - last.step) <= ROW_STEPS or strike.time - last.time <= ROW_SECONDS
        return self._has_data_of(strike) or (strike.run in self._rows and in_a_row and goes_on)

    def inner(self) -> list[Strike]:
        """Returns the strikes between the first and the last of their run, which add nothing."""
        ends = {each.n for each in self._ends()}
        return [each for each in self.strikes if each.n not in ends]

    def _ends(self) -> list[Strike]:
        return [each for row in self._rows.values() for each in row]

    def _has_data_of(self, strike: Strike) -> bool:
        if strike.job != self.strikes[0].job:
            return False
        if any(first.step <= strike.step <= last.step for first, last in self._rows.values()):
            return True
        place = strike.checkpoint, strike.value
        is_finite = strike.value is not None and math.isfinite(strike.value)
        return is_finite and any((each.checkpoint, each.value) == place for each in self.strikes)


def incidents(strikes: Iterable[Strike]) -> list[Incident]:
    """Groups the strikes of one device, the earliest first, into incidents."""
    found: list[Incident] = []
    for strike in strikes:
        may = (each for each in reversed(found) if strike.unclear or each.unclear or strike.incident in each.named)
        mine = next((each for each in may if each.goes_on_with(strike)), None)
        if mine is None:
            found.append(Incident(strike))
        else:
            mine.add(strike)
    return found


def count(strikes: Iterable[Strike], policy: Policy, now: float) -> StrikeCount:
    """Counts the strikes of one device, the earliest first; an incident is as old as its first strike."""
    counting = waiting = 0
    score = 0.0
    for incident in incidents(strikes):
        age = now - incident.strikes[0].time
        counts, is_recent = any(each.counts for each in incident.strikes), age < policy.window_seconds
        counting += counts and is_recent
        waiting += is_recent and not counts
        score += policy.weight(age) if counts else 0.0
    return StrikeCount(counting, waiting, score)
