"""Verdict of a rule on one value."""

from enum import IntEnum
from typing import NamedTuple


class Level(IntEnum):
    """Severity of a value; a larger number is more serious."""

    NORMAL = 0
    WARNING = 1
    """Second level: reported, never acted on."""
    ERROR = 2
    """First level: the update is refused and the configured action follows."""


class Verdict(NamedTuple):
    """Verdict of a rule on one value.

    Attributes:
        level: Severity of the value.
        reason: Reason in a few words; empty for a normal value.
        value: The judged value, in the rule's feature and without the loss scale.
        limit: Largest value without a first-level anomaly; `inf` without a limit.
    """

    level: Level
    reason: str
    value: float
    limit: float
