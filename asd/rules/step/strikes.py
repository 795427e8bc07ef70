"""A strike is one training step in which a device produced at least one first-level anomaly."""

from __future__ import annotations

from asd.event import Event

__all__ = ["COOLDOWN_SECONDS", "LIMIT", "WINDOW_SECONDS", "moment"]

LIMIT = 3
WINDOW_SECONDS = 480 * 60.0
COOLDOWN_SECONDS = 300.0
"""Anomalies whose step is not known are one strike when they are no further apart, as in the vendor's check."""


def moment(event: Event) -> int:
    """The step that tells when `event` was; 0 when none does.

    What was read from the vendor's logs has a key, and its step counts the checks since the start of one process, of
    which many share a run: the same number is not the same moment.
    """
    return 0 if event.key else event.step
