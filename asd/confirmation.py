"""A second look at a suspicious step: was it the data, or a device that failed once?

An unusual batch can send gradients a thousandfold up, so a gradient above its margins is a second-level anomaly only,
until it lasts. With a second look the update of such a step is held back, as that of any step with a first-level
anomaly, and the step is made again. Data does the same again. What is within its limits then was no data, and the
update of the second run is applied as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from asd.reading import Reading

__all__ = ["Allowance", "vanished"]

BURST = 5
"""Steps that may be made again before the share counts: the first steps are when a fault does the most harm."""


class Allowance:
    """How often a second look is taken.

    Args:
        share: Of the steps, 0..1.

    Examples:
        >>> allowance = Allowance(0.25)
        >>> for step in range(5):
        ...     allowance.spend()
        >>> allowance.left(step=3), allowance.left(step=4)
        (False, True)
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._spent = 0

    def left(self, step: int) -> bool:
        """Whether step number `step`, from 1, may be made again."""
        return self._share > 0 and self._spent < BURST + int(self._share * step)

    def spend(self) -> None:
        """Says that a step was made again."""
        self._spent += 1


def vanished(
    first: Iterable[Reading], again: Iterable[Reading], suspicious: Callable[[Reading], bool]
) -> list[Reading]:
    """What was suspicious in the first run of a step and is not in the second.

    Bits are not compared: a healthy device need not repeat them, but a value that was far too large comes back only if
    it comes from the data or from a device that fails each time.

    Args:
        first: What the checkpoints saw.
        again: The same of the second run; a checkpoint that is missing there says nothing.
        suspicious: Whether a reading is above its second-level limit.
    """
    then = {reading.checkpoint: reading for reading in again}
    return [
        reading
        for reading in first
        if suspicious(reading) and reading.checkpoint in then and not suspicious(then[reading.checkpoint])
    ]
