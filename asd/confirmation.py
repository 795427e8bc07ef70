"""A second look at a suspicious step: was it the data, or a device that failed once?

An unusual batch can send gradients a thousandfold up, so a gradient above its margins is a second-level anomaly only,
until it lasts. With a second look the update of such a step is held back, as that of any step with a first-level
anomaly, and the step is made again. Data does the same again. What is within its limits then was no data, and the
update of the second run is applied as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from asd.reading import AVERAGED, Reading
from asd.tiers.features import FEATURES

__all__ = ["Allowance", "vanished"]

BURST = 5
"""Steps that may be made again before the share counts: the first steps are when a fault does the most harm."""
_OF_OPTIMIZER = ("W", AVERAGED)


class Allowance:
    """How often a second look is taken.

    Args:
        share: Of the steps, 0..1.

    Examples:
        >>> allowance = Allowance(0.25)
        >>> for step in range(5):
        ...     allowance.spend()
        >>> [allowance.next_step() for step in range(4)]
        [False, False, False, True]
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._steps = self._spent = 0

    def next_step(self) -> bool:
        """Counts a step and says whether it may be made again."""
        self._steps += 1
        return self._share > 0 and self._spent < BURST + int(self._share * self._steps)

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
        again: The same of the second run; a checkpoint that is missing there, or was checked more or less often, as by
            an evaluation before the step, says nothing. What the optimizer gets is looked at once more where an update
            is applied than where it is refused.
        suspicious: Whether a reading is above its second-level limit.

    Returns:
        In the order in which they were checked: the first one is where it began.
    """
    then = {reading.checkpoint: reading for reading in again}
    return [
        reading
        for reading in sorted(first, key=lambda each: each.order)
        if suspicious(reading)
        and (other := then.get(reading.checkpoint)) is not None
        and (other.calls == reading.calls or reading.kind in _OF_OPTIMIZER)
        and not suspicious(other)
        and _has_fallen(reading, other)
    ]


def _has_fallen(one: Reading, other: Reading) -> bool:
    """Whether it is below half of what it was: a limit between two nearly equal values shows nothing."""
    sizes = ((getattr(one, name), getattr(other, name)) for name in FEATURES)
    return one.non_finite > 0 or any(before > 2 * after for before, after in sizes)
