"""Checks of saved states: a number that can't have been saved must not come in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any

from asd.errors import StateError

__all__ = ["as_float", "saved_count", "saved_keys", "saved_number", "saved_numbers", "wrong_state"]


def wrong_state(what: str, key: str, value: object, valid: str) -> StateError:
    """The error for one value of a saved state, in one sentence."""
    return StateError(f"State of {what}: {key} has the value {value!r}, which is not valid: {valid}.")


def saved_keys(what: str, state: object, keys: Iterable[str]) -> Mapping[str, Any]:
    """`state`, if it is a mapping with exactly these keys; raises StateError otherwise."""
    wanted = list(keys)
    if isinstance(state, Mapping) and set(state) == set(wanted):
        return state
    found = f"the keys {', '.join(map(str, state))}" if isinstance(state, Mapping) else f"the value {state!r}"
    raise StateError(f"State of {what} has {found}, which is not valid: the keys {', '.join(wanted)}.")


def saved_number(what: str, key: str, value: object, low: float | None = None) -> float:
    """`value` as a float, if it is a finite number of at least `low`; raises StateError otherwise."""
    number = as_float(value)
    if number is not None and isfinite(number) and (low is None or number >= low):
        return number
    raise wrong_state(what, key, value, "a finite number" if low is None else f"a finite number of at least {low:g}")


def saved_count(what: str, key: str, value: object) -> int:
    """`value`, if it is an integer of at least 0; raises StateError otherwise."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0:
        return int(value)
    raise wrong_state(what, key, value, "an integer of at least 0")


def saved_numbers(what: str, key: str, values: object, size: int) -> list[float]:
    """`values` as floats, if they are that many finite numbers; raises StateError otherwise."""
    if isinstance(values, list | tuple) and len(values) == size:
        return [saved_number(what, key, value) for value in values]
    raise wrong_state(what, key, values, f"a list of {size} numbers")


def as_float(value: object) -> float | None:
    """A real number as a float; None for anything else, for True and False, and for integers that are too large."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
