"""History of one feature of one checkpoint: envelope, growth and floor of its logarithm."""

from __future__ import annotations

from math import log2

from asd.rules.base import saved_count, saved_keys, saved_number, wrong_state

WARM = 20  # values to learn before a trace is good for statistics
DECAY = 0.01  # bits by which the envelope and the floor return each step
RISE_KEPT = 0.9  # share of the largest recent rise that is kept each step
POWER = 8.0  # a value that grows with this power of the number of steps is healthy, whatever it was at first
_POWERS = tuple(POWER * log2(1 + 1 / n) if n else 0.0 for n in range(512))
"""Bits by which it grows after n steps; for later steps the rest is negligible."""
_NUMBERS = ("env", "rise", "low")


class Trace:
    """History of a stream of logarithms x in three numbers, all in bits.

    The next x gives

        rise = max(x - env, 0.9 * rise)       with env from before
        env  = max(x, env - 0.01)
        low  = min(x, low + 0.01)

    Attributes:
        env: Envelope, the recent largest.
        rise: Recent largest rise above the envelope.
        low: Floor, the recent smallest.
        n: Values learned.
        ceiling: Largest next value by continued growth: the recent rise, or growth by a power of the steps.

    A weight moves by at most the learning rate in a step of Adam, so after n steps a product of p of them has grown as
    n**p at most, by p * log2(1 + 1/n) bits in the next. Deep parts of a network are such products.
    """

    __slots__ = ("ceiling", "env", "low", "n", "rise")

    def __init__(self) -> None:
        self.env = self.rise = self.low = self.ceiling = 0.0
        self.n = 0

    def learn(self, x: float) -> None:
        """Learns a healthy value."""
        self.n += 1
        if self.n == 1:
            self.env = self.low = x
            self._raise_ceiling()
            return
        # Comparisons instead of min() and max(): the trace of each checkpoint learns in every step.
        rise, kept = x - self.env, RISE_KEPT * self.rise
        self.rise = rise if rise > kept else kept
        self.env = x if rise > -DECAY else self.env - DECAY
        self.low = x if x < self.low + DECAY else self.low + DECAY
        self._raise_ceiling()

    def _raise_ceiling(self) -> None:
        power = _POWERS[self.n] if self.n < len(_POWERS) else 0.0
        self.ceiling = self.env + (power if power > self.rise else self.rise)

    def state(self) -> dict[str, float]:
        """Returns the three numbers and the count."""
        return {"env": self.env, "rise": self.rise, "low": self.low, "n": self.n}

    @classmethod
    def of(cls, what: str, state: object) -> Trace:
        """Returns the trace of a saved state; raises StateError if it is not valid."""
        values = saved_keys(what, state, (*_NUMBERS, "n"))
        trace = cls()
        trace.env, trace.rise, trace.low = (
            saved_number(what, key, values[key], 0 if key == "rise" else None) for key in _NUMBERS
        )
        trace.n = saved_count(what, "n", values["n"])
        trace._raise_ceiling()
        if trace.low > trace.env:
            raise wrong_state(what, "low", trace.low, f"at most env, {trace.env!r}")
        return trace
