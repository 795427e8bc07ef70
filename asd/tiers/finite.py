"""The first tier: a tensor with an element that is no number."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from asd.tiers.features import FEATURES, Features
from asd.tiers.kinds import kind_of
from asd.tiers.saved import check_keys
from asd.verdict import Level, Verdict

__all__ = ["Finite"]


class Finite:
    """An error if a tensor has an element that is `inf` or `nan`; it remembers nothing.

    Args:
        kind: `Y`, `B` or `W`; for the reason only.

    >>> Finite("B").update(Features(1.0, 2.0, 0.5, non_finite=3)).reason
    'gradient: 3 elements not finite'
    """

    feature = "max_abs"

    def __init__(self, kind: str) -> None:
        self._kind = kind_of(kind)

    def update(self, features: Features) -> Verdict:
        """Judges the tensor of this step."""
        if features.finite:
            return Verdict(Level.NORMAL, "", features.max_abs, inf)
        return Verdict(Level.ERROR, f"{self._kind.name}: {not_finite(features)}", features.not_a_number(), inf)

    def limit(self) -> dict[str, float]:
        """No finite value is an error."""
        return dict.fromkeys(FEATURES, inf)

    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes nothing.

        Raises:
            StateError: There is something.
        """
        check_keys("tier finite", state, ())


def not_finite(features: Features) -> str:
    """How a reason tells of it."""
    return f"{features.non_finite} elements not finite" if features.non_finite else "not finite"
