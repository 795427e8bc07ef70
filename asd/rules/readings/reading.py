"""What one checkpoint saw in one step."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "AVERAGED",
    "CHECKSUM",
    "CONVOLUTION",
    "GRADIENT",
    "LOOKUP",
    "MEAN",
    "NORM",
    "OF_ALL_RANKS",
    "OUTPUT",
    "RESULTS",
    "SAMPLE",
    "SCORES",
    "SOFTMAX",
    "WEIGHT_GRADIENT",
    "Reading",
    "divisor",
]

GRADIENT = "B"
"""The kind of the gradient of an activation."""
WEIGHT_GRADIENT = "W"
"""The kind of the gradient of a parameter, of one rank alone."""
AVERAGED = "A"
"""The kind of a gradient that is the mean over ranks: all of them see the same, so none can be named for it."""
SCORES = ("checksum", "mean", "norm", "convolution", "lookup", "softmax")
"""Kinds of checkpoints that hold no size of a tensor but a score, as `max_abs`: how well a result fits what gave it."""
CHECKSUM, MEAN, NORM, CONVOLUTION, LOOKUP, SOFTMAX = SCORES
RESULTS = (CHECKSUM, NORM, CONVOLUTION, LOOKUP, SOFTMAX)
"""Kinds of what a layer computes and the tier `checksum` computes again."""
OF_ALL_RANKS = (AVERAGED, MEAN)
"""Kinds to which all ranks contribute."""
SAMPLE = "sample"
"""The kind of a gradient that the vendor's combined scheme samples."""
OUTPUT = "Y"
"""The kind of an output of the forward pass, which no loss scale has to do with."""
_SCALED = (GRADIENT, SAMPLE)


class Reading(NamedTuple):
    """What one checkpoint saw in one step.

    Attributes:
        checkpoint: Its name.
        max_abs: Largest magnitude among the finite elements, worst call.
        l2: L2 norm of the worst call; `inf` or `nan` when an element is.
        non_finite: Number of elements that are `inf` or `nan`, all calls.
        calls: How often the checkpoint was checked in this step; micro-batches and shared layers count each time.
        order: Orders the checkpoints of one step by when they were first checked; smaller is earlier.
        worst_call: Which call of the step saw the largest norm, from 1; 0 when it is not known.
        mean_abs: Mean magnitude of the worst call; `inf` or `nan` when an element is.
        elements: Number of elements of the tensor; 0 when it is not known.
        kind: One of the constants above.
    """

    checkpoint: str
    max_abs: float
    l2: float
    non_finite: int
    calls: int
    order: int = 0
    worst_call: int = 0
    mean_abs: float = 0.0
    elements: int = 0
    kind: str = GRADIENT


def divisor(kind: str, loss_scale: float) -> float:
    """What the values of a checkpoint of this kind are divided by.

    The loss scale is in the gradients of activations, and in those of parameters that are sampled before the ranks are
    summed up; an optimizer is called with gradients that are divided by it already.
    """
    return loss_scale if kind in _SCALED else 1.0
