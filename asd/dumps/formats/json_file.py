"""Reads a JSON file of bounded length; `NaN`, `Infinity` and `-Infinity` are numbers."""

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from asd.errors import StateError


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Opens a regular file for reading; raises for a pipe or a device, without blocking.

    Raises:
        StateError: It is not a regular file, or not UTF-8.
        OSError: It cannot be read.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, encoding="utf-8-sig") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise StateError(f"{path} is not a regular file.")
        try:
            yield file
        except UnicodeDecodeError as error:
            raise StateError(f"{path} is not UTF-8 text: byte {error.start} of a block can't be read.") from None


def read_json(path: Path, longest: int = 1 << 28, hook: Callable[[dict[str, object]], object] | None = None) -> object:
    """Returns the one JSON value in a file, with what `hook` returns for each object.

    Raises:
        StateError: The file is longer than `longest` characters or is not JSON.
        OSError: It cannot be read.
    """
    with open_text(path) as file:
        content = file.read(longest + 1)
    if len(content) > longest:
        raise StateError(f"{path} is longer than {longest} characters.")
    try:
        return json.loads(content, object_hook=hook)
    except RecursionError:
        raise StateError(f"{path} is not valid JSON: it is nested too deeply.") from None
    except ValueError as error:
        raise StateError(f"{path} is not valid JSON: {getattr(error, 'msg', error)}.") from None
