"""The journal of a dump: JSON lines appended while a step runs, which are made into the three JSON files when it ends.

Each line reaches the operating system before the training goes on, so a process that is killed leaves all of it but the
line it was writing. `Gathered` says what lines come to: of a living run as they are written, of a run that was killed
as `read_journal` reads them.

    {"header": {"task": ..., "level": ..., "framework": ..., "dump_data_dir": ...}}
    {"name": entry, "part": "output", "path": [0], "value": {...}}       one value; path [] sets the whole part
    {"name": entry, "parent": entry or null}
    {"name": entry, "stack": number}, {"frames": [...], "number": number}
    {"dropped": entry}                                                   all that was said of it does not count
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

from asd.errors import StateError

__all__ = ["JOURNAL", "Gathered", "read_journal"]

JOURNAL = "dump.journal.jsonl"
_LARGEST_INDEX = 1_000_000


def read_journal(path: Path) -> Gathered:
    """What a journal comes to, as far as it was written.

    Raises:
        StateError: It is not one.
        OSError: It can't be read.
    """
    gathered = Gathered()
    for line in _lines(path):
        gathered.take(line)
    return gathered


class Gathered:
    """What the lines of a journal come to.

    Attributes:
        head: The members of `dump.json` but for `data`.
        data: That, the entries by name.
        stacks: By the name of an entry the number of its stack.
        frames: The stacks by number, the innermost frame first.
    """

    def __init__(self) -> None:
        self.head: dict[str, Any] = {}
        self.data: dict[str, Any] = {}
        self._parents: dict[str, str | None] = {}
        self.stacks: dict[str, int] = {}
        self.frames: dict[int, list[str]] = {}

    @property
    def parents(self) -> dict[str, str | None]:
        """`construct.json`: the module that each entry is in. A dump of calls alone has none."""
        calls_alone = self.head.get("level") == "L1" and self.head.get("task") != "overflow_check"
        return {} if calls_alone else self._parents

    def take(self, line: dict[str, Any]) -> None:
        """The next line."""
        data = self.data
        if "header" in line:
            self.head = line["header"]
        elif "frames" in line:
            self.frames[line["number"]] = line["frames"]
        elif "dropped" in line:
            for about in (data, self.stacks, self._parents):
                about.pop(line["dropped"], None)
        elif "stack" in line:
            self.stacks[line["name"]] = line["stack"]
        elif "parent" in line:
            self._parents[line["name"]] = line["parent"]
        else:
            # To the end: the order of `data` is that in which its entries were completed.
            data[line["name"]] = entry = data.pop(line["name"], {})
            # A copy: what is whole now may be filled up later, and is not ours.
            entry[line["part"]] = _placed(entry.get(line["part"]), line["path"], copy(line["value"]))


def _lines(journal: Path) -> Iterator[dict[str, Any]]:
    with journal.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                return  # the run was killed in the middle of this line
            try:
                line = json.loads(text)
            except (ValueError, RecursionError) as error:  # UnicodeDecodeError is one
                raise StateError(f"line {number} of {journal} is not JSON; valid is what a dump writes.") from error
            if not isinstance(line, dict):
                raise StateError(f"line {number} of {journal} is not an object; valid is what a dump writes.")
            if not _is_ours(line):
                raise StateError(f"line {number} of {journal} is of another form; valid is what a dump writes.")
            yield line


def _is_ours(line: dict[str, Any]) -> bool:
    if "header" in line:
        return isinstance(line["header"], dict)
    if "frames" in line:
        return type(line.get("number")) is int
    if "dropped" in line:
        return isinstance(line["dropped"], str)
    if not isinstance(line.get("name"), str):
        return False
    if "stack" in line:
        return type(line["stack"]) is int
    if "parent" in line:
        return True
    path = line.get("path")
    return (
        isinstance(line.get("part"), str)
        and "value" in line
        and isinstance(path, list)
        and all(isinstance(each, str) or (type(each) is int and 0 <= each < _LARGEST_INDEX) for each in path)
    )


def _placed(container: Any, path: list[int | str], value: Any) -> Any:
    """`container` with `value` at `path`; lists are filled up with null.

    Args:
        container: What is there so far; None for nothing.
        path: Indices of lists and keys of objects; empty: `value` takes the place of all.
        value: Of JSON.
    """
    if not path:
        return value
    here, rest = path[0], path[1:]
    if isinstance(here, str):
        container = container if isinstance(container, dict) else {}
        container[here] = _placed(container.get(here), rest, value)
        return container
    container = container if isinstance(container, list) else []
    container.extend([None] * (here + 1 - len(container)))
    container[here] = _placed(container[here], rest, value)
    return container
