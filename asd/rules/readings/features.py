"""What is known of one checked tensor in one step."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, NamedTuple

from asd.rules.readings.reading import Reading, divisor

__all__ = ["FEATURES", "WORDS", "Features", "features_of", "too_small", "value_of"]

FEATURES = ("max_abs", "l2", "mean_abs")
"""The fields of `Features` that are judged, in the order in which they are."""
WORDS = {"max_abs": "maximum", "l2": "L2 norm", "mean_abs": "mean magnitude"}
"""What the reasons of verdicts call them."""


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


def features_of(reading: Reading, loss_scale: float) -> Features:
    """What a rule is to judge of `reading`: its sizes without the loss scale."""
    # The same arithmetic as the gate's limits are made for, so that both always say the same.
    if loss_scale != 1.0:
        loss_scale = divisor(reading.kind, loss_scale)
    return Features(
        reading.max_abs / loss_scale,
        reading.l2 / loss_scale,
        reading.mean_abs / loss_scale,
        reading.non_finite,
        reading.elements,
    )


def value_of(features: Features, feature: str) -> float:
    """The one number of `features` that an event calls `feature`; of a tensor that is not finite what is not."""
    if not features.finite:
        return features.not_a_number()
    if feature == "max_square":
        return features.max_abs * features.max_abs
    return features.l2 if feature == "l2" else features.max_abs
