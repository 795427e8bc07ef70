"""What one feature of one checkpoint has shown so far: mean, deviation, envelope and floor of its logarithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asd.errors import StateError
from asd.tiers.saved import check_count, check_keys, check_number

__all__ = ["DEVIATION_FLOOR", "FIRST", "WARM", "Trace"]

FIRST = 5
"""Values to learn before a trace is good for anything."""
WARM = 20
"""Values to learn before its margins are the final ones."""
MEAN_RATE = 0.05
MEAN_CLIP = 4.0
"""After the warm-up a value pulls the mean up as if it were at most so many bits above it."""
DEVIATION_START = 0.2
"""Before anything is known. Started from the first two values it is near 0 when they happen to be close, and then
healthy ones look 12 deviations off."""
DEVIATION_RATE = 0.02
DEVIATION_FLOOR = 0.05
"""The smallest deviation that counts, in bits: below it is rounding."""
DECAY = 0.01
"""How many bits the envelope and the floor come back each step."""
_NUMBERS = ("mu", "dev", "env", "low")


class Trace:
    """Four numbers about a stream of logarithms x, all in bits.

    With n values learned before and the rate r = max(0.05, 1/(n+1)) the next one gives

        mu  += r * (min(x, mu + 4) - mu)                               without the minimum in the warm-up
        dev += max(0.02, 1/(n+1)) * (min(|x - mu|, 4*dev + 0.05) - dev)     with mu from before; dev starts at 0.2
        env  = max(x, env - 0.01)
        low  = min(x, low + 0.01)

    Attributes:
        mu: Mean.
        dev: Mean absolute deviation.
        env: Envelope, the recent largest.
        low: Floor, the recent smallest.
        n: Values learned.
    """

    __slots__ = ("dev", "env", "low", "mu", "n")

    def __init__(self) -> None:
        self.mu = self.env = self.low = 0.0
        self.dev = DEVIATION_START
        self.n = 0

    def deviations(self, x: float) -> float:
        """How far `x` is above the mean."""
        return (x - self.mu) / max(self.dev, DEVIATION_FLOOR)

    def learn(self, x: float, distance: float | None = None) -> None:
        """Takes in a healthy value; `distance` from the mean, if it is not that of `x` itself."""
        if self.n == 0:
            self.mu = self.env = self.low = x
        else:
            if distance is None:
                distance = abs(x - self.mu)
            average = 1 / (self.n + 1)
            clipped = min(x, self.mu + MEAN_CLIP) if self.n > WARM else x
            self.mu += max(MEAN_RATE, average) * (clipped - self.mu)
            self.dev += max(DEVIATION_RATE, average) * (min(distance, 4 * self.dev + DEVIATION_FLOOR) - self.dev)
            self.env = max(x, self.env - DECAY)
            self.low = min(x, self.low + DECAY)
        self.n += 1

    def state(self) -> dict[str, float]:
        """The four numbers and the count."""
        return {"mu": self.mu, "dev": self.dev, "env": self.env, "low": self.low, "n": self.n}

    @classmethod
    def of(cls, what: str, state: object) -> Trace:
        """The trace that `state()` was made of, or StateError."""
        values: Mapping[str, Any] = check_keys(what, state, (*_NUMBERS, "n"))
        trace = cls()
        trace.mu, trace.dev, trace.env, trace.low = (
            check_number(what, key, values[key], 0 if key == "dev" else None) for key in _NUMBERS
        )
        trace.n = check_count(what, "n", values["n"])
        if trace.low > trace.env:
            raise StateError(
                f"State of {what}: low has the value {trace.low!r}, which is not valid: at most env, {trace.env!r}."
            )
        return trace
