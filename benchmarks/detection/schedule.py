"""What a training is told, and what can be seen of it: plain data, without MindSpore."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = ["BETA1", "BETA2", "CLIP", "DECAY", "EPSILON", "Record", "Schedule"]

BETA1, BETA2, EPSILON, CLIP, DECAY = 0.9, 0.95, 1e-8, 1.0, 0.01
"""Of AdamW, and the norm to which gradients are clipped."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Schedule:
    """Learning rates and the legitimate events of a run.

    Attributes:
        steps: Steps of the run.
        warm_up: Steps of linear warm-up; a cosine to a tenth of the peak follows.
        peak: Learning rate after the warm-up.
        event: `none` or one of `EVENTS` in plan.py.
        at: Step of the event.
    """

    steps: int
    warm_up: int
    peak: float
    event: str = "none"
    at: int = 0

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        if step < self.warm_up:
            rate = self.peak * (step + 1) / self.warm_up
        else:
            done = (step - self.warm_up) / max(1, self.steps - self.warm_up)
            rate = self.peak * (0.55 + 0.45 * np.cos(np.pi * min(1.0, done)))
        if self.event == "rate too hot":
            return rate * 10
        if self.event == "rate jump" and self.at <= step < self.at + 40:
            return rate * 5
        if self.event == "resume" and self.at <= step < self.at + 10:
            return rate * (step - self.at + 1) / 10
        return rate

    def happens(self, event: str, step: int) -> bool:
        """Whether `event` has begun."""
        return self.event == event and step >= self.at


class Record(NamedTuple):
    """What can be seen of one step.

    Attributes:
        features: Of each rank and site: max|t|, L2, mean|t|, non-finite count; shape (R, S, 4).
        loss: Mean training loss over ranks.
        norm: Norm of the averaged gradient, before clipping.
        spikes: Elements of the averaged gradient with g² > 5000 v.
        bounds: Of each rank max|m|, max v, max|weight| and min v after the step; shape (R, 4).
        odd: The rank whose weight hash differs from the others' after the step; -1 for none, -2 for two halves.
        blocks: Of each rank and each tensor of its weights, the master weights and both moments, how many blocks have
            another hash at the beginning of the step than at the end of the one before, and how many there are; shape
            (R, T, 2). A tensor that is the same memory as another one has none.
        averaged: Of each weight the features of its averaged gradient, which the optimizer gets; shape (W, 4).
    """

    features: Array
    loss: float
    norm: float
    spikes: int
    bounds: Array
    odd: int
    blocks: Array
    averaged: Array
