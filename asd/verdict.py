"""What a rule says about one value."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Level(IntEnum):
    """How serious a value is; a larger number is more serious."""

    NORMAL = 0
    WARNING = 1
    """Second level: reported, never acted on."""
    ERROR = 2
    """First level: the update is refused and the configured action follows."""


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
