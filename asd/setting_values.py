"""How the text of a setting becomes a value, and which values are valid.

What parses gives None for a text that says no value at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

__all__ = [
    "LARGEST",
    "LONGEST_NAME",
    "SMALLEST",
    "is_address",
    "is_file",
    "is_folder",
    "is_name",
    "is_pair",
    "one_of",
    "parse_count",
    "parse_flag",
    "parse_mode",
    "parse_names",
    "parse_pair",
    "parse_share",
    "up_to",
]

SMALLEST, LARGEST = 3, 2**63 - 1
"""The bounds of a threshold."""
LONGEST_NAME = 128
_PAIR = re.compile(r"\s*([0-9]+)\s*,\s*([0-9]+)\s*", re.ASCII)


def parse_flag(text: str) -> bool | None:
    """0 or 1."""
    return {"0": False, "1": True}.get(text)


def parse_mode(text: str) -> int | None:
    """One digit."""
    return int(text) if re.fullmatch("[0-9]", text, re.ASCII) else None


def parse_pair(text: str) -> tuple[int, int] | None:
    """Two whole numbers with a comma between them."""
    match = _PAIR.fullmatch(text)
    if match is None:
        return None
    first, second = (digits.lstrip("0") or "0" for digits in match.groups())
    if max(len(first), len(second)) > len(str(LARGEST)):  # int() refuses texts of thousands of digits
        return None
    return int(first), int(second)


def parse_names(text: str) -> tuple[str, ...]:
    """Names with commas between them; none for an empty text."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def parse_count(text: str) -> int | None:
    """A whole number of at most nine digits."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text, re.ASCII) else None


def parse_share(text: str) -> float | None:
    """A decimal number from 0 to 1."""
    return float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9}", text, re.ASCII) else None


def is_pair(value: object) -> bool:
    """Whether it is two thresholds, the first above the second."""
    return (
        isinstance(value, tuple)
        and [type(number) for number in value] == [int, int]
        and LARGEST >= value[0] > value[1] >= SMALLEST
    )


def is_folder(value: object) -> bool:
    """Whether it can be the name of a folder."""
    return isinstance(value, str) and value != "" and "\0" not in value


def is_file(value: object) -> bool:
    """Whether it can be the name of a file, or is empty."""
    return isinstance(value, str) and "\0" not in value


def is_address(value: object) -> bool:
    """Whether it can be an address or the name of a machine."""
    return isinstance(value, str) and re.fullmatch(r"[^\s\0/]+", value) is not None


def up_to(largest: int) -> Callable[[object], bool]:
    """A check that a value is a whole number from 0 to `largest`."""
    return lambda value: type(value) is int and 0 <= value <= largest


def is_name(value: object) -> bool:
    """Whether it can be printed in one line of an event, or is empty."""
    return isinstance(value, str) and len(value) <= LONGEST_NAME and (value == "" or value.isprintable())


def one_of(names: Mapping[str, str]) -> Callable[[object], bool]:
    """A check that a value is one of `names`."""
    return lambda value: isinstance(value, str) and value in names
