"""The policy: every number that decides about a device."""

import math
from dataclasses import dataclass

LIMIT = 3  # number of strikes that isolate a device
WINDOW_SECONDS = 480 * 60.0  # time for which a strike counts fully
BREAKER_SECONDS = 86400.0  # window of the circuit breaker, and time for which it stays open unless it is reset
SKEW_SECONDS = 60.0  # largest difference between the clocks of two hosts
ROW_STEPS, ROW_SECONDS = 10, 60.0
"""Unclear strikes of one run that are no further apart than one of these are one incident."""
INCIDENT_SECONDS = 3600.0  # an incident that goes on for so long counts again

_FEW = 2
_HALF_LIVES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules for isolating and releasing a device. Times are seconds.

    After its window a strike counts less and less, for months. A passed test clears no strike, only a person does.
    """

    strikes: int = LIMIT  # number of strikes in the window that isolate a device; from 1
    window_seconds: float = WINDOW_SECONDS  # time for which a strike counts fully
    half_life_seconds: float = 30 * 86400.0  # time after the window in which the weight of a strike halves; above 0
    many_devices: int = 3  # devices of one job whose anomalies at once are software or data; from 2
    burst_seconds: float = 30.0  # largest time between these anomalies
    settle_seconds: float = 30.0  # time that a strike waits for others of its job, unless a replay confirms it
    max_devices: int = 2  # most devices of one node that are isolated in `BREAKER_SECONDS`; 0 isolates none
    max_percent: float = 10.0  # most nodes with devices isolated in this time, in % of the known ones; 0: none, else 2
    release_after_seconds: float = 2 * 86400.0  # time without a fault after which a passed test releases; 0: never
    stale_seconds: float = WINDOW_SECONDS  # age from which a verdict isolates no device any more
    retry_seconds: float = 1.0  # the pause after the first failure; it doubles each time
    longest_pause_seconds: float = 300.0  # the longest of these pauses
    dry_run: bool = False  # decide and report, touch nothing

    def allowed(self, known: int) -> int:
        """Returns how many of the `known` nodes may have devices isolated within `BREAKER_SECONDS`.

        >>> Policy().allowed(known=1000), Policy().allowed(known=8)
        (100, 2)
        """
        return max(_FEW, math.floor(known * self.max_percent / 100)) if self.max_percent else 0

    def weight(self, age: float) -> float:
        """Returns the weight of a strike that is `age` seconds old.

        >>> [round(Policy().weight(days * 86400), 2) for days in (0.1, 30, 90)]
        [1.0, 0.5, 0.13]
        """
        return float(0.5 ** (max(0.0, age - self.window_seconds) / self.half_life_seconds))

    @property
    def strike_memory_seconds(self) -> float:
        """Time for which strikes are kept."""
        return max(self.memory_seconds, _HALF_LIVES * self.half_life_seconds)

    @property
    def memory_seconds(self) -> float:
        """Time for which facts are kept: longer than anything reads them."""
        longest = max(self.window_seconds, BREAKER_SECONDS, self.stale_seconds, self.burst_seconds)
        return longest + SKEW_SECONDS + self.settle_seconds
