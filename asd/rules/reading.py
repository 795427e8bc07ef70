"""Reading of one site in one step."""

from math import isfinite
from typing import NamedTuple

GRADIENT = "B"  # the kind of the gradient of an activation
WEIGHT_GRADIENT = "W"  # the kind of the gradient of a parameter, of one rank alone
AVERAGED = "A"  # the kind of a gradient that was summed over ranks: it may refuse an update, and names no device
SCORES = ("checksum", "twice")  # kinds of sites whose value is a score: how well a result fits its operands
CHECKSUM, TWICE = SCORES


class Reading(NamedTuple):
    """Reading of one site in one step."""

    checkpoint: str  # name of the site
    # statistic of the tensor in the worst call: by rule its L2 norm or its largest magnitude; for `SCORES` the score.
    # `inf` or `nan` when an element is, and when the norm is too large for float32
    value: float
    order: int = 0  # orders the sites of one step by their first check; smaller is earlier
    kind: str = GRADIENT  # one of the constants above

    @property
    def finite(self) -> bool:
        """Returns whether the value is finite."""
        return isfinite(self.value)


def divisor(kind: str, loss_scale: float) -> float:
    """Returns the divisor of the values of a site of this kind.

    Gradients of activations contain the loss scale; an optimizer gets gradients already divided by it.
    """
    return loss_scale if kind == GRADIENT else 1.0


def unscaled(reading: Reading, loss_scale: float) -> float:
    """Returns the value without the loss scale, by the arithmetic of the gate's limits."""
    return reading.value if loss_scale == 1.0 else reading.value / divisor(reading.kind, loss_scale)
