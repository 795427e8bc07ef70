"""What a rule says about one value."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

__all__ = ["Level", "Verdict"]


class Level(IntEnum):
    """How serious a value is; a larger number is more serious.

    The vendor kernels return 0 for normal, 1 for the first level and 2 for the second: `vendor_code` gives that.
    """

    NORMAL = 0
    WARNING = 1
    """Second level: reported, never acted on."""
    ERROR = 2
    """First level: the update is refused and the configured action follows."""

    @property
    def vendor_code(self) -> int:
        """The result code of the vendor kernels: 0 normal, 1 first level, 2 second level."""
        return (0, 2, 1)[self]


class Verdict(NamedTuple):
    """A rule's answer for one value.

    Attributes:
        level: How serious the value is.
        reason: Why, in a few words; empty for a normal value.
        value: The value that was judged, in the rule's feature and unscaled by the loss scale.
        limit: The largest value that would not have been a first-level anomaly, `inf` while there is none.
    """

    level: Level
    reason: str
    value: float
    limit: float
