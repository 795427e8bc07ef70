"""States that earlier versions saved, made into what is saved now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from asd.reading import AVERAGED

__all__ = ["with_means"]


def with_means(state: Mapping[str, Any], known: Collection[str]) -> Mapping[str, Any]:
    """A saved state in which means over the ranks have a kind of their own.

    Before they had, what was learned at the optimizer of a data-parallel training was called like each rank's own
    gradient, which is larger than the mean.

    Args:
        state: As saved.
        known: Names of the checkpoints of this network.
    """
    tiers = state.get("tiers")
    if not isinstance(tiers, Mapping) or AVERAGED in (tails := tiers.get("tails") or {}):
        return state
    kinds, checkpoints = tiers.get("kinds") or {}, state["checkpoints"]
    means = {name: f"averaged.{name}" for name, kind in kinds.items() if kind == "W" and f"averaged.{name}" in known}
    if not means:
        return state
    return {
        **state,
        "checkpoints": {means.get(name, name): values for name, values in checkpoints.items()},
        "tiers": {
            **tiers,
            "kinds": {means.get(name, name): AVERAGED if name in means else kind for name, kind in kinds.items()},
            "ranks": {name: values for name, values in (tiers.get("ranks") or {}).items() if name not in means},
            "tails": {AVERAGED if symbol == "W" else symbol: values for symbol, values in tails.items()},
        },
    }
