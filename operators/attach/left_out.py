"""Places of a network that were to be checked and are not: told by who finds out, taken by the training that asked.

Who puts checks in their places finds out before the first step, and code that runs while a graph is compiled during it;
the training says both in the log and in the status of the rank, see `asd.rules.step.protections`.
"""

from __future__ import annotations

__all__ = ["leave_out", "take_left_out"]

_places: dict[tuple[str, str], None] = {}


def leave_out(place: str, reason: str) -> None:
    """Says that `place`, such as `layers.0.attention.wq`, is not checked, and why; the second time changes nothing."""
    _places[place, reason] = None


def take_left_out() -> list[tuple[str, str]]:
    """Place and reason of each that was left out since the last call, in that order."""
    found = list(_places)
    _places.clear()
    return found
