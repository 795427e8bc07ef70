"""What is known of one checked tensor in one step."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

__all__ = ["FEATURES", "WORDS", "Features", "too_small"]

FEATURES = ("max_abs", "l2", "mean_abs")
"""The fields of `Features` that are judged, in the order in which they are."""
WORDS = {"max_abs": "maximum", "l2": "L2 norm", "mean_abs": "mean magnitude"}
"""The same in the reasons of verdicts."""


class Features(NamedTuple):
    """Three sizes of one tensor t, without loss scale, and how many of its elements are no numbers.

    Attributes:
        max_abs: Largest magnitude, max(abs(t)).
        l2: sqrt(sum(t*t)).
        mean_abs: mean(abs(t)).
        non_finite: Number of elements that are `inf` or `nan`.
        elements: Number of elements; it is not judged.
    """

    max_abs: float
    l2: float
    mean_abs: float
    non_finite: int = 0
    elements: int = 0

    @property
    def finite(self) -> bool:
        """Whether all of it are numbers."""
        return not self.non_finite and isfinite(self.max_abs) and isfinite(self.l2) and isfinite(self.mean_abs)

    def not_a_number(self) -> float:
        """The value to report of a tensor that is not finite: the first size that is not, else `nan`."""
        sizes: tuple[Any, ...] = self[:3]
        return next((size for size in sizes if not isfinite(size)), float("nan"))


def too_small(features: Features, least: Mapping[str, float]) -> str:
    """The first feature that is below its lower limit; empty if none is.

    A tensor that is all zero is too small only where the limit of its maximum is above 0; where it was all zero before,
    and healthy, the others have nothing to say.
    """
    if features.max_abs == 0.0:
        return FEATURES[0] if least[FEATURES[0]] > 0.0 else ""
    return next((name for name in FEATURES[1:] if getattr(features, name) < least[name]), "")
