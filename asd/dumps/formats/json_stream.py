"""A large JSON object read member by member, so that only one member is in memory at a time.

The members that are wanted lie one level down (`data` of a dump.json); `NaN`, `Infinity` and `-Infinity` are numbers.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from asd.errors import StateError

__all__ = ["members", "open_text", "read_json"]

_CHUNK = 1 << 18
_LONGEST = 1 << 26
"""Characters of one member; a longer one is no description of an operator's tensors."""
_SPACE = " \t\n\r"
_DECODER = json.JSONDecoder()


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Opens a regular file for reading; a pipe or a device is refused instead of waited for.

    Raises:
        StateError: It is no regular file, or not UTF-8.
        OSError: It can't be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, encoding="utf-8-sig") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise StateError(f"{path} is not a regular file.")
        try:
            yield file
        except UnicodeDecodeError as error:
            raise StateError(f"{path} is not UTF-8 text: byte {error.start} of a block can't be read.") from None


def read_json(path: Path, longest: int = 1 << 28) -> object:
    """The one JSON value a file holds.

    Raises:
        StateError: The file is longer than `longest` characters or is not JSON.
        OSError: It can't be read.
    """
    with open_text(path) as file:
        content = file.read(longest + 1)
    if len(content) > longest:
        raise StateError(f"{path} is longer than {longest} characters.")
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise StateError(f"{path} is not valid JSON: {_reason(error)}.") from None


def members(path: Path, inside: str) -> Iterator[tuple[str, str, object]]:
    """The members of the object in `path`, in the order of the file, as (`""`, name, value).

    The member called `inside` is not given itself: its own members are, as (`inside`, name, value).

    Raises:
        StateError: The file is cut short, is not JSON, or holds no object there.
        OSError: It can't be read.
    """
    with open_text(path) as file:
        reader = _Reader(path, file)
        for name in reader.names():
            if name == inside:
                for inner in reader.names():
                    yield inside, inner, reader.value()
            else:
                yield "", name, reader.value()
        reader.end()


class _Reader:
    """A window on the text that is moved forward."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._path, self._file = path, file
        self._text, self._at, self._before = "", 0, 0

    def names(self) -> Iterator[str]:
        """The names of the object that begins here; the caller takes each value before the next name."""
        self._expect("{")
        if self._next() == "}":
            self._at += 1
            return
        while True:
            if self._next() != '"':
                raise self._broken("a name in double quotes is missing")
            name = self.value()
            self._expect(":")
            yield str(name)
            if self._next() == "}":
                self._at += 1
                return
            self._expect(",")

    def value(self) -> object:
        """The value that begins here."""
        self._next()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if isinstance(error, RecursionError) or not self._more():
                    raise self._broken(_reason(error)) from None
                continue
            # A number may go on behind the window, which may end with `.` or `e+` of a fraction or an exponent.
            goes_on = len(self._text) - end <= 2 and not self._text[end:].strip("+-.eE")
            if not goes_on or not self._more():
                self._at = end
                return value

    def end(self) -> None:
        """Makes sure that nothing follows."""
        if self._next(optional=True):
            raise self._broken("something follows the end of the object")

    def _expect(self, sign: str) -> None:
        if self._next() != sign:
            raise self._broken(f"{sign!r} is missing")
        self._at += 1

    def _next(self, *, optional: bool = False) -> str:
        while True:
            while self._at < len(self._text):
                if self._text[self._at] not in _SPACE:
                    return self._text[self._at]
                self._at += 1
            if not self._more():
                if optional:
                    return ""
                raise self._broken("it is cut short")

    def _more(self) -> bool:
        if len(self._text) - self._at > _LONGEST:
            raise self._broken(f"one member is longer than {_LONGEST} characters")
        # Twice as much each time: a long member is tried a few times only.
        block = self._file.read(max(_CHUNK, len(self._text) - self._at))
        self._before += self._at
        self._text, self._at = self._text[self._at :] + block, 0
        return bool(block)

    def _broken(self, reason: str) -> StateError:
        return StateError(f"{self._path} is not a whole JSON object: {reason}, at character {self._before + self._at}.")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)
