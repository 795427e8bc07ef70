"""A part of a `config.json`: the values of its keys, checked one by one, each error one sentence.

Checked by hand, because the vendor's files mix texts, numbers and ranges, have several forms of one value, and contain
keys of other tasks.
"""

import re
from collections.abc import Callable, Collection
from typing import Any

from asd.errors import ConfigError

LARGEST_NUMBER = 1_000_000
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class ConfigObject:
    """A JSON object whose keys are taken one by one.

    Args:
        content: The object.
        where: Named in errors.
    """

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, dict):
            raise ConfigError(where, content, "it must be a JSON object")
        self._left = dict(content)
        self._known: list[str] = []
        self._where = where

    def wrong(self, key: str, value: Any, valid: str) -> ConfigError:
        """Returns the error that `key` has a wrong value."""
        shown = value if len(repr(value)) < 200 else repr(value)[:200] + "..."
        return ConfigError(f"{key[:80]} in {self._where}", shown, f"it must be {valid}")

    def take(self, key: str, default: Any) -> Any:
        """Returns the value of `key`, whatever it is."""
        self._known.append(key)
        return self._left.pop(key, default)

    def end(self, others: Collection[str] = (), elsewhere: Collection[str] = (), place: str = "") -> None:
        """Refuses keys that were not taken and are not in `others`; keys in `elsewhere` belong in `place`."""
        known = ", ".join(sorted({*self._known, *others}))
        for key in [key for key in self._left if key not in others][:1]:
            belongs = f"{key} {place}" if key in elsewhere else f"one of {known}"
            raise self.wrong(key, self._left[key], belongs)

    def one_of(self, key: str, valid: tuple[str, ...], default: str) -> str:
        """Returns one of some words."""
        value = self.take(key, default)
        if value not in valid:
            raise self.wrong(key, value, f"one of {', '.join(valid)}")
        return str(value)

    def text(self, key: str, default: str) -> str:
        """Returns a text that is not empty."""
        value = self.take(key, default)
        if not isinstance(value, str) or not value or "\0" in value:
            raise self.wrong(key, value, "a text that is not empty")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns a list of texts; nothing and null are an empty one."""
        return self.items(key, lambda item: isinstance(item, str) and item != "", "a list of texts")

    def flag(self, key: str) -> bool:
        """Returns true or false."""
        value = self.take(key, False)  # noqa: FBT003 - the default of a JSON key
        if not isinstance(value, bool):
            raise self.wrong(key, value, "true or false")
        return value

    def limit(self, key: str, default: int) -> int:
        """Returns a number of events, or -1 for no limit."""
        count = self.take(key, default)
        if type(count) is not int or not (count == -1 or 0 < count <= LARGEST_NUMBER):
            raise self.wrong(key, count, f"a whole number from 1 to {LARGEST_NUMBER}, or -1 for no limit")
        return count

    def numbers(self, key: str) -> frozenset[int]:
        """Returns a list of whole numbers, texts of numbers, and ranges such as "4-6"."""
        valid = f'a list of whole numbers from 0 to {LARGEST_NUMBER}, or ranges such as "4-6"'
        found: set[int] = set()
        for item in self.items(key, lambda item: type(item) is int or isinstance(item, str), valid):
            match = _RANGE.fullmatch(str(item)) if len(str(item)) < 20 else None
            first, last = (int(match[1]), int(match[2] or match[1])) if match else (-1, -1)
            if not 0 <= first <= last <= LARGEST_NUMBER:
                raise self.wrong(key, item, valid)
            found.update(range(first, last + 1))
        return frozenset(found)

    def items(self, key: str, fits: Callable[[Any], bool], valid: str) -> tuple[Any, ...]:
        """Returns a list whose items all fit; nothing and null are an empty one."""
        value = self.take(key, [])
        if value is None:
            return ()
        if not isinstance(value, list) or not all(fits(item) for item in value):
            raise self.wrong(key, value, valid)
        return tuple(value)
