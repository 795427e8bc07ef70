"""Settings and their formats: parsing of texts, valid values, and the text of an error.

A parser returns None for a text without any value.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from asd.errors import ConfigError

_SMALLEST, _LARGEST = 3, 2**63 - 1  # of a threshold
_LONGEST_NAME = 128
_PAIR = re.compile(r"\s*([0-9]{1,100})\s*,\s*([0-9]{1,100})\s*", re.ASCII)


class ValueFormat(NamedTuple):
    """Common format of some settings."""

    parse: Callable[[str], Any]  # returns the value of a text; None for a text without any value
    accepts: Callable[[Any], bool]  # returns whether a value is valid
    valid: str  # description of valid values, for errors


def _text(pattern: str, valid: str) -> ValueFormat:
    return ValueFormat(str, lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None, valid)


FLAG = ValueFormat({"0": False, "1": True}.get, lambda value: isinstance(value, bool), "it must be 0 or 1")
FOLDER = _text(r"[^\0]+", "it must be the name of a folder, not empty and without a NUL character")
DIGITS = _text("[0-9]{0,5}", "it must be the number of a device, for example 3")
NAME = ValueFormat(
    str,
    lambda value: isinstance(value, str) and len(value) <= _LONGEST_NAME and (value == "" or value.isprintable()),
    f"it must be a name of at most {_LONGEST_NAME} printable characters",
)
SHARE = ValueFormat(
    lambda text: float(text) if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9}", text, re.ASCII) else None,
    lambda value: isinstance(value, float | int) and 0 <= value <= 1,
    "it must be a share of the steps from 0, for never, to 1, for example 0.01",
)


def count(largest: int, valid: str) -> ValueFormat:
    """Returns the format of a whole number from 0 to `largest`, at most nine digits in a text."""
    return ValueFormat(
        lambda text: int(text) if re.fullmatch("[0-9]{1,9}", text, re.ASCII) else None,
        lambda value: type(value) is int and 0 <= value <= largest,
        valid,
    )


def choice(words: Collection[str]) -> ValueFormat:
    """Returns the format of one of these words."""
    return ValueFormat(
        str, lambda value: isinstance(value, str) and value in words, f"it must be one of {', '.join(words)}"
    )


def names(known: Collection[str]) -> ValueFormat:
    """Returns the format of some of these names, with `+` or a comma between them; None is left to the rule."""
    return ValueFormat(
        lambda text: tuple(name.strip() for name in re.split("[+,]", text)) if text else (),
        lambda value: (
            value is None or (isinstance(value, tuple) and len(set(value)) == len(value) and set(value) <= set(known))
        ),
        f"it must be some of {', '.join(known)}, each once and with + between them, or empty for none",
    )


def pair(example: tuple[int, int]) -> ValueFormat:
    """Returns the format of two thresholds, the first above the second."""
    return ValueFormat(
        lambda text: (int(match[1]), int(match[2])) if (match := _PAIR.fullmatch(text)) else None,
        _is_pair,
        f"it must be two whole numbers, first,second, each from {_SMALLEST} to {_LARGEST} and the first larger than "
        f"the second, for example {example[0]},{example[1]}",
    )


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and [type(number) for number in value] == [int, int]
        and _LARGEST >= value[0] > value[1] >= _SMALLEST
        and float(value[0]) > float(value[1])  # as they are compared
    )


class Variable(NamedTuple):
    """A setting: an environment variable, or an option in `ASD_OPTIONS`."""

    name: str  # name of the setting
    field: str  # name of its field of `Config`
    format: ValueFormat  # parsing and valid values
    about: str  # purpose of the setting, as in `asd env` and the documents

    def value_of(self, text: str, name: str = "") -> Any:
        """Returns the value of `text`.

        Args:
            text: Text of the setting.
            name: Name of the setting in an error; its own `name` if not given.
        """
        value = self.format.parse(text)
        if not self.format.accepts(value):
            raise ConfigError(name or self.name, text, self.format.valid)
        return value
