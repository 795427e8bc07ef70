"""Reads a JSON file of bounded length; `NaN`, `Infinity` and `-Infinity` are numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from asd.errors import StateError
from asd.regular_file import open_regular

_LONGEST = 1 << 28
_PIECE = 1 << 16
_AFTER = frozenset(",:]} \t\n\r")
_SPACE = re.compile(r"[ \t\n\r]*")
_decode = json.JSONDecoder().raw_decode


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Opens a regular file for reading; raises StateError where it can't be read or is not UTF-8."""
    try:
        with open(open_regular(path, links=True), encoding="utf-8-sig") as file:
            yield file
    except UnicodeDecodeError as error:
        raise StateError(f"{path} is not UTF-8 text: byte {error.start} of a block can't be read.") from None
    except OSError as error:
        raise StateError(f"{path} can't be read: {error.strerror or error}.") from None


def read_json(path: Path, longest: int = _LONGEST) -> object:
    """Returns the one JSON value in a file; raises StateError, also where it has more than `longest` characters."""
    with _text(path, longest) as text:
        return text.value()


def json_members(path: Path, inner: str) -> Iterator[tuple[str, str, object]]:
    """Yields the members of the object in a file singly: (`""`, name, value), and those of `inner` with its name."""
    with _text(path, _LONGEST) as text:
        yield from text.members("", inner)


@contextmanager
def _text(path: Path, longest: int) -> Iterator[_Text]:
    with open_text(path) as file:
        text = _Text(file, longest)
        try:
            yield text
            text.take("")
        except RecursionError:
            raise StateError(f"{path} is not valid JSON: it is nested too deeply.") from None
        except ValueError as error:
            if isinstance(error, UnicodeDecodeError):
                raise
            raise StateError(f"{path} is not valid JSON: {getattr(error, 'msg', error)}.") from None


class _Text:
    """A file's text, of which only the part that is being read is held."""

    def __init__(self, file: TextIO, longest: int) -> None:
        self._file, self._longest, self._read = file, longest, 0
        self._text, self._at, self._ended = "", 0, False

    def members(self, where: str, inner: str) -> Iterator[tuple[str, str, object]]:
        """Returns the members of the object that follows, and those of the object `inner` in it."""
        self.take("{")
        while self._next() != "}":
            name = str(self.value())
            self.take(":")
            if name == inner != where:
                yield from self.members(inner, inner)
            else:
                yield where, name, self.value()
            if self._next() != "}":
                self.take(",")
        self.take("}")

    def value(self) -> object:
        """Returns the value that follows."""
        while self._next():
            try:
                found, end = _decode(self._text, self._at)
                if self._ended or self._text[end : end + 1] in _AFTER:  # a number may go on
                    self._at = end
                    return found
            except json.JSONDecodeError:
                if self._ended:
                    raise
            self._more()
        raise ValueError("it ends where a value is needed")

    def take(self, character: str) -> None:
        """Reads a character; an empty one is the end of the file."""
        if self._next() != character:
            raise ValueError(f"{character or 'the end'!r} is needed, not {self._next() or 'the end'!r}")
        self._at += len(character)

    def _next(self) -> str:
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more()

    def _more(self) -> None:
        rest = self._text[self._at :]
        piece = self._file.read(max(_PIECE, len(rest)))  # so that a long value is not decoded again and again
        self._read += len(piece)
        if self._read > self._longest:
            raise ValueError(f"it has more than {self._longest} characters")
        self._text, self._at, self._ended = rest + piece, 0, not piece
