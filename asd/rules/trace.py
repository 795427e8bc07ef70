"""What one feature of one checkpoint has shown so far: mean, deviation, envelope, growth and floor of its logarithm."""

from __future__ import annotations

from math import log2

from asd.rules.base import saved_count, saved_keys, saved_number, wrong_state

__all__ = ["DEVIATION_FLOOR", "WARM", "Trace"]

WARM = 20
"""Values to learn before a trace is good for statistics."""
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
RISE_KEPT = 0.9
"""How much of the largest recent rise is kept each step."""
POWER = 8.0
"""A value that grows with this power of the number of steps is healthy, whatever it was at first."""
_POWERS = tuple(POWER * log2(1 + 1 / n) if n else 0.0 for n in range(512))
"""By how many bits it grows after n steps; of later steps nothing is left that counts."""
_NUMBERS = ("mu", "dev", "env", "rise", "low")


class Trace:
    """Five numbers about a stream of logarithms x, all in bits.

    With n values learned before and the rate r = max(0.05, 1/(n+1)) the next one gives

        mu  += r * (min(x, mu + 4) - mu)                               without the minimum in the warm-up
        dev += max(0.02, 1/(n+1)) * (min(|x - mu|, 4*dev + 0.05) - dev)     with mu from before; dev starts at 0.2
        rise = max(x - env, 0.9 * rise)                                with env from before
        env  = max(x, env - 0.01)
        low  = min(x, low + 0.01)

    Attributes:
        mu: Mean.
        dev: Mean absolute deviation.
        env: Envelope, the recent largest.
        rise: How far a value was recently above the envelope.
        low: Floor, the recent smallest.
        n: Values learned.
        ceiling: How far growth that goes on takes the next value: as far as lately, or as a power of the steps does.

    A weight moves by at most the learning rate in a step of Adam, so after n steps a product of p of them has grown as
    n**p at most, by p * log2(1 + 1/n) bits in the next. Deep parts of a network are such products.
    """

    __slots__ = ("ceiling", "dev", "env", "low", "mu", "n", "rise")

    def __init__(self) -> None:
        self.mu = self.env = self.rise = self.low = self.ceiling = 0.0
        self.dev = DEVIATION_START
        self.n = 0

    def deviations(self, x: float) -> float:
        """How far `x` is above the mean."""
        return (x - self.mu) / (self.dev if self.dev > DEVIATION_FLOOR else DEVIATION_FLOOR)

    def learn(self, x: float, distance: float | None = None) -> None:
        """Takes in a healthy value; `distance` from the mean, if it is not that of `x` itself."""
        n, mu, dev = self.n, self.mu, self.dev
        self.n = n + 1
        if n == 0:
            self.mu = self.env = self.low = x
            self._raise_ceiling()
            return
        # Comparisons instead of min() and max(): the trace of each checkpoint learns in every step.
        above = x - mu
        if distance is None:
            distance = above if above > 0.0 else -above
        most = 4.0 * dev + DEVIATION_FLOOR
        average = 1.0 / (n + 1)
        rate = average if average > DEVIATION_RATE else DEVIATION_RATE
        self.dev = dev + rate * ((distance if distance < most else most) - dev)
        if n > WARM and above > MEAN_CLIP:
            above = MEAN_CLIP
        self.mu = mu + (average if average > MEAN_RATE else MEAN_RATE) * above
        rise, kept = x - self.env, RISE_KEPT * self.rise
        self.rise = rise if rise > kept else kept
        self.env = x if rise > -DECAY else self.env - DECAY
        self.low = x if x < self.low + DECAY else self.low + DECAY
        self._raise_ceiling()

    def _raise_ceiling(self) -> None:
        power = _POWERS[self.n] if self.n < len(_POWERS) else 0.0
        self.ceiling = self.env + (power if power > self.rise else self.rise)

    def state(self) -> dict[str, float]:
        """The five numbers and the count."""
        return {"mu": self.mu, "dev": self.dev, "env": self.env, "rise": self.rise, "low": self.low, "n": self.n}

    @classmethod
    def of(cls, what: str, state: object) -> Trace:
        """The trace that `state()` was made of, or StateError."""
        values = saved_keys(what, state, (*_NUMBERS, "n"))
        trace = cls()
        trace.mu, trace.dev, trace.env, trace.rise, trace.low = (
            saved_number(what, key, values[key], 0 if key in ("dev", "rise") else None) for key in _NUMBERS
        )
        trace.n = saved_count(what, "n", values["n"])
        trace._raise_ceiling()
        if trace.low > trace.env:
            raise wrong_state(what, "low", trace.low, f"at most env, {trace.env!r}")
        return trace
