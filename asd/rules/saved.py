"""Checks of saved states: a number that can't have been saved must not come in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from numbers import Real
from typing import Any

from asd.errors import StateError

__all__ = ["check_count", "check_keys", "check_number", "check_numbers"]


def check_keys(what: str, state: object, keys: Iterable[str]) -> Mapping[str, Any]:
    """`state`, if it is a mapping with exactly these keys; raises StateError otherwise."""
    wanted = list(keys)
    if isinstance(state, Mapping) and set(state) == set(wanted):
        return state
    found = f"the keys {', '.join(map(str, state))}" if isinstance(state, Mapping) else f"the value {state!r}"
    raise StateError(f"State of {what} has {found}, which is not valid: the keys {', '.join(wanted)}.")


def check_number(what: str, key: str, value: object, low: float | None = None) -> float:
    """`value` as a float, if it is a finite number of at least `low`; raises StateError otherwise."""
    if isinstance(value, Real) and not isinstance(value, bool):
        number = float(value)
        if isfinite(number) and (low is None or number >= low):
            return number
    valid = "a finite number" if low is None else f"a finite number of at least {low:g}"
    raise StateError(f"State of {what}: {key} has the value {value!r}, which is not valid: {valid}.")


def check_count(what: str, key: str, value: object) -> int:
    """`value`, if it is an integer of at least 0; raises StateError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise StateError(f"State of {what}: {key} has the value {value!r}, which is not valid: an integer of at least 0.")


def check_numbers(what: str, key: str, values: object, size: int | None = None) -> list[float]:
    """`values` as floats, if they are finite and, with `size`, that many; raises StateError otherwise."""
    if isinstance(values, list | tuple) and size in (None, len(values)):
        return [check_number(what, key, value) for value in values]
    valid = "a list of numbers" if size is None else f"a list of {size} numbers"
    raise StateError(f"State of {what}: {key} has the value {values!r}, which is not valid: {valid}.")
