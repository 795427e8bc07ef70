"""Options of isolators: each may be given as a Python value or as the text that a command line has."""

from __future__ import annotations

import math
import re

from asd.errors import ConfigError

__all__ = ["seconds", "text"]

_LONGEST = 3600.0


def seconds(name: str, value: object, smallest: float = 0.01, largest: float = _LONGEST) -> float:
    """`value` as a number of seconds.

    Raises:
        ConfigError: It is none, or out of its range.
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not smallest <= number <= largest:
        raise ConfigError(
            f"the option {name}", value, f"it must be a number of seconds from {smallest:g} to {largest:g}"
        )
    return number


def text(name: str, value: object, pattern: str, valid: str) -> str:
    """`value`, which must match `pattern` as a whole; `valid` says so in words.

    Raises:
        ConfigError: It does not.
    """
    if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
        raise ConfigError(f"the option {name}", value, valid)
    return value
