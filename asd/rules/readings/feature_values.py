"""From what a checkpoint saw to the numbers that are judged."""

from __future__ import annotations

from asd.rules.readings.features import Features
from asd.rules.readings.reading import Reading, divisor

__all__ = ["features_of", "value_of"]


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
