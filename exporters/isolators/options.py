"""Options of isolators: each may be a Python value or its text from a command line."""

import math
import re

from asd.errors import ConfigError

_SHORTEST, _LONGEST = 0.01, 3600.0


def seconds(name: str, value: object) -> float:
    """Returns `value` as a number of seconds; raises ConfigError if it is not a number, or out of range."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not _SHORTEST <= number <= _LONGEST:
        valid = f"it must be a number of seconds from {_SHORTEST:g} to {_LONGEST:g}"
        raise ConfigError(f"the option {name}", value, valid)
    return number


def text(name: str, value: object, pattern: str, valid: str) -> str:
    """Returns `value`, which must match `pattern` as a whole; `valid` describes the pattern."""
    if not isinstance(value, str) or not re.fullmatch(pattern, value, re.ASCII):
        raise ConfigError(f"the option {name}", value, valid)
    return value
