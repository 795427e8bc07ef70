"""Confirmation re-run of a suspicious step: distinguishes the data from a device that failed once."""

from collections.abc import Iterable

from asd.judge.detectors import Detectors
from asd.rules.reading import Reading

BURST = 5  # steps that may be re-run before the share counts: a fault does the most harm in the first steps
LOOKS = 2  # of these, those for values that are within the margins
RESERVE = 0.3  # share of the budget that is kept for values beyond the margins
_MOVE, _FURTHEST = 0.25, 2.0


class Allowance:
    """Budget of confirmation re-runs; all ranks of a job keep the same.

    Args:
        share: Share of the steps, 0..1.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._steps = self._spent = 0
        # bits by which thresholds are above the fitted ones: re-runs raise them, other steps lower them
        self.moved = 0.0

    def next_step(self) -> bool:
        """Counts a step and returns whether it may be re-run."""
        self._steps += 1
        self.moved = max(self.moved - _MOVE * self._share, -_FURTHEST)
        return self._share > 0 and self._spent < BURST + int(self._share * self._steps)

    def spend(self) -> None:
        """Counts a re-run."""
        self._spent += 1
        self.moved = min(self.moved + _MOVE, _FURTHEST)

    @property
    def for_looks(self) -> float:
        """Returns the share of the steps that values within the margins may have re-run; 0 when it is spent."""
        share = (1 - RESERVE) * self._share
        return share if self._spent < LOOKS + int(share * self._steps) else 0.0


def vanished(first: Iterable[Reading], again: Iterable[Reading], judges: Detectors, loss_scale: float) -> list[Reading]:
    """Returns the suspicious readings of the first run of a step that the second run did not confirm.

    Bits are not compared: a healthy device need not repeat them. A value that was far off comes back only if it comes
    from the data or from a device that fails each time. Rounding that is a fraction of other rounding shows nothing.

    Args:
        first: Readings of the first run.
        again: Readings of the second run; a site that is missing there is left out.
        judges: Rules of the checkpoints, before they judge the step.
        loss_scale: Divisor of the readings.

    Returns:
        Readings in the order of their checks: the first one is where it began.
    """
    then = {reading.checkpoint: reading for reading in again}
    return [
        reading
        for reading in sorted(first, key=lambda each: each.order)
        if judges.suspicion(reading, loss_scale) is not None
        and (other := then.get(reading.checkpoint)) is not None
        and judges.suspicion(other, loss_scale) is None
        # A limit between nearly equal values shows nothing. A fifth is far more than two runs on a device differ by.
        and not 0.8 * other.value <= reading.value <= other.value / 0.8
        and not (reading.value < other.value and judges.is_rounding(other, loss_scale))
    ]
