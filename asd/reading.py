"""What one checkpoint saw in one step."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Reading"]


class Reading(NamedTuple):
    """What one checkpoint saw in one step.

    Attributes:
        checkpoint: Its name.
        max_abs: Largest magnitude among the finite elements, worst call.
        l2: L2 norm of the worst call; `inf` or `nan` when an element is.
        non_finite: Number of elements that are `inf` or `nan`, all calls.
        calls: How often the checkpoint was checked in this step; micro-batches and shared layers count each time.
        order: Orders the checkpoints of one step by when they were first checked; smaller is earlier.
    """

    checkpoint: str
    max_abs: float
    l2: float
    non_finite: int
    calls: int
    order: int = 0
