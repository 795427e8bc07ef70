"""What one site saw in one step."""

from __future__ import annotations

from math import isfinite
from typing import NamedTuple

GRADIENT = "B"
"""The kind of the gradient of an activation."""
WEIGHT_GRADIENT = "W"
"""The kind of the gradient of a parameter, of one rank alone."""
AVERAGED = "A"
"""The kind of a gradient that was summed over ranks: it may refuse an update, and names no device."""
SCORES = ("checksum", "twice")
"""Kinds of sites that hold no size of a tensor but a score: how well a result fits what gave it."""
CHECKSUM, TWICE = SCORES


class Reading(NamedTuple):
    """What one site saw in one step.

    Attributes:
        checkpoint: Its name.
        value: The statistic of the tensor, of the worst call: by rule its L2 norm or its largest magnitude; of
            `SCORES` the score. `inf` or `nan` when an element is, and when the norm is too large for float32.
        order: Orders the sites of one step by when they were first checked; smaller is earlier.
        kind: One of the constants above.
    """

    checkpoint: str
    value: float
    order: int = 0
    kind: str = GRADIENT

    @property
    def finite(self) -> bool:
        """Whether the value is a number."""
        return isfinite(self.value)


def divisor(kind: str, loss_scale: float) -> float:
    """What the values of a site of this kind are divided by.

    The loss scale is in the gradients of activations; an optimizer is called with gradients that are divided by it.
    """
    return loss_scale if kind == GRADIENT else 1.0


def unscaled(reading: Reading, loss_scale: float) -> float:
    """The value without the loss scale, by the arithmetic for which the gate's limits are made."""
    return reading.value if loss_scale == 1.0 else reading.value / divisor(reading.kind, loss_scale)
