"""The policy: every number that decides about a device."""

from __future__ import annotations

import math
from dataclasses import dataclass

LIMIT = 3
"""So many strikes take a device out."""
WINDOW_SECONDS = 480 * 60.0
"""How long a strike counts whole."""
BREAKER_SECONDS = 86400.0
"""The window of the circuit breaker, and how long it stays open unless it is reset."""
SKEW_SECONDS = 60.0
"""The clocks of two hosts are no further apart."""
ROW_STEPS, ROW_SECONDS = 10, 60.0
"""Strikes of one run that nobody can judge, and are no further apart than one of these, are one incident."""
INCIDENT_SECONDS = 3600.0
"""An incident that goes on for so long counts again."""

_FEW = 2
_HALF_LIVES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When a device is taken out and given back. Times are seconds.

    Attributes:
        strikes: So many strikes in the window take a device out; from 1. After it a strike counts less and less, for
            months, and so many of these do too; no test clears it that is passed, only a person.
        window_seconds: How long a strike counts whole.
        half_life_seconds: After the window a strike counts half of what it did so much earlier; above 0.
        many_devices: So many devices of one job with first-level anomalies at once are software or data; from 2.
        burst_seconds: How far apart they may be.
        settle_seconds: How long a strike waits for others of its job before it counts, unless a replay confirms it.
        max_devices: So many devices of one node are taken out in `BREAKER_SECONDS`; 0 takes none.
        max_percent: Of so many nodes, as a share of those that are known, are devices taken out in this time, then the
            circuit breaker opens; 0 to 100, of few nodes it never means less than 2.
        release_after_seconds: A device without a new fault for so long is given back if it passed a stress test
            since; 0 means only by hand.
        stale_seconds: A verdict that comes later than this takes no device out any more.
        retry_seconds: The pause after the first failure; it doubles each time.
        longest_pause_seconds: The longest of these pauses.
        dry_run: Decide and report, touch nothing.
    """

    strikes: int = LIMIT
    window_seconds: float = WINDOW_SECONDS
    half_life_seconds: float = 30 * 86400.0
    many_devices: int = 3
    burst_seconds: float = 30.0
    settle_seconds: float = 30.0
    max_devices: int = 2
    max_percent: float = 10.0
    release_after_seconds: float = 2 * 86400.0
    stale_seconds: float = WINDOW_SECONDS
    retry_seconds: float = 1.0
    longest_pause_seconds: float = 300.0
    dry_run: bool = False

    def allowed(self, known: int) -> int:
        """Of how many of the `known` nodes devices may be taken out within `BREAKER_SECONDS`.

        >>> Policy().allowed(known=1000), Policy().allowed(known=8)
        (100, 2)
        """
        return max(_FEW, math.floor(known * self.max_percent / 100)) if self.max_percent else 0

    def weight(self, age: float) -> float:
        """What a strike counts that is so many seconds old.

        >>> [round(Policy().weight(days * 86400), 2) for days in (0.1, 30, 90)]
        [1.0, 0.5, 0.13]
        """
        after = max(0.0, age - self.window_seconds)
        return float(0.5 ** (after / self.half_life_seconds))

    @property
    def strike_memory_seconds(self) -> float:
        """How long strikes are kept."""
        return max(self.memory_seconds, _HALF_LIVES * self.half_life_seconds)

    @property
    def memory_seconds(self) -> float:
        """How long facts are kept: longer than anything asks for them."""
        longest = max(self.window_seconds, BREAKER_SECONDS, self.stale_seconds, self.burst_seconds)
        return longest + SKEW_SECONDS + self.settle_seconds
