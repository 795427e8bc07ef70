"""A second look at a suspicious step: was it the data, or a device that failed once?"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from asd.rules.readings.reading import Reading

BURST = 5
"""Steps that may be made again before the share counts: the first steps are when a fault does the most harm."""


class Allowance:
    """How often a second look is taken.

    Args:
        share: Of the steps, 0..1.
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

    Bits are not compared: a healthy device need not repeat them, but a value that was far off comes back only if it
    comes from the data or from a device that fails each time.

    Args:
        first: What the checkpoints saw.
        again: The same of the second run; a site that is missing there says nothing.
        suspicious: Whether a reading is beyond its second-level limits.

    Returns:
        In the order in which they were checked: the first one is where it began.
    """
    then = {reading.checkpoint: reading for reading in again}
    return [
        reading
        for reading in sorted(first, key=lambda each: each.order)
        if suspicious(reading)
        and (other := then.get(reading.checkpoint)) is not None
        and not suspicious(other)
        and (has_fallen(reading, other) or has_fallen(other, reading))
    ]


def has_fallen(one: Reading, other: Reading) -> bool:
    """Whether it is a fifth below what it was: a limit between two nearly equal values shows nothing.

    That is a third of a bit: less than makes a value suspicious, and far more than two runs on one device differ by.
    """
    return not one.finite or other.value < 0.8 * one.value
