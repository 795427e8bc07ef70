"""The journal of a dump: JSON lines appended while a step runs, made into the three JSON files when it ends.

Each line reaches the operating system before the training goes on, or in a compiled graph a second later, so a process
that is killed leaves all of it but the line it was writing or the last second of a graph. `Gathered` makes `dump.json`,
`stack.json` and `construct.json` of lines: of a living run as they are written, of a run that was killed as `finish`
reads them. There is one way only.

    {"header": {"task": ..., "level": ..., "framework": ..., "dump_data_dir": ...}}
    {"name": entry, "part": "output", "path": [0], "value": {...}}       one value; path [] sets the whole part
    {"name": entry, "parent": entry or null}
    {"name": entry, "stack": number}, {"frames": [...], "number": number}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

from asd.errors import StateError
from asd.evidence.indented import indented, members
from asd.statefile import write_whole

__all__ = ["JOURNAL", "Gathered", "finish", "placed", "recover"]

JOURNAL = "dump.journal.jsonl"
_LARGEST_INDEX = 1_000_000


def recover(folder: Path) -> list[Path]:
    """Makes readable dumps of all journals that killed runs left under `folder`.

    Args:
        folder: The `dump_path` of the runs, or any folder in it.

    Returns:
        The folders that hold a `dump.json` now.

    Raises:
        StateError: A journal is not one.
        OSError: A file can't be read or written.
    """
    found = sorted(path.parent for path in folder.rglob(JOURNAL))
    for rank_folder in found:
        finish(rank_folder)
    return found


def finish(folder: Path) -> None:
    """Writes `dump.json`, `stack.json` and `construct.json` of the journal in `folder`, and removes the journal.

    Raises:
        StateError: The journal is not one.
        OSError: A file can't be read or written; the journal is still there.
    """
    gathered = Gathered()
    for line in _lines(folder / JOURNAL):
        gathered.take(line)
    gathered.write(folder)


class Gathered:
    """What the lines of a journal come to."""

    def __init__(self) -> None:
        self._dump: dict[str, Any] = {}
        self._data: dict[str, Any] = {}
        self._stacks: dict[str, int] = {}
        self._parents: dict[str, str | None] = {}
        self._frames: dict[int, list[str]] = {}

    def take(self, line: dict[str, Any]) -> None:
        """The next line."""
        data = self._data
        if "header" in line:
            self._dump = line["header"]
        elif "frames" in line:
            self._frames[line["number"]] = line["frames"]
        elif "stack" in line:
            self._stacks[line["name"]] = line["stack"]
        elif "parent" in line:
            self._parents[line["name"]] = line["parent"]
            if line["name"] in data:  # its graph has only now ended: it comes after what was inside it
                data[line["name"]] = data.pop(line["name"])
        else:
            # To the end: the order of `data` is that in which its entries were completed.
            data[line["name"]] = entry = data.pop(line["name"], {})
            # A copy: what is whole now may be filled up later, and is not ours.
            entry[line["part"]] = placed(entry.get(line["part"]), line["path"], copy(line["value"]))

    def write(self, folder: Path) -> None:
        """Writes the three files into `folder`, `dump.json` last, and removes the journal.

        A power failure may take what was written in the last seconds, as it may take the last lines of a journal; the
        end of a process takes nothing.

        Raises:
            OSError: A file can't be written; the journal is still there.
        """
        frames = {number: indented(lines, 1) for number, lines in self._frames.items()}  # many calls share a stack
        stacks = members((name, frames.get(number, "[]")) for name, number in self._stacks.items())
        write_whole(folder / "stack.json", stacks, flush=False)
        write_whole(folder / "construct.json", indented(self._parents), flush=False)
        write_whole(folder / "dump.json", indented({**self._dump, "data": self._data}))
        (folder / JOURNAL).unlink()


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
    if not isinstance(line.get("name"), str):
        return False
    if "stack" in line:
        return type(line["stack"]) is int
    if "parent" in line:
        return True
    path = line.get("path")
    return isinstance(line.get("part"), str) and "value" in line and isinstance(path, list) and all(
        isinstance(each, str) or (type(each) is int and 0 <= each < _LARGEST_INDEX) for each in path
    )  # fmt: skip


def placed(container: Any, path: list[int | str], value: Any) -> Any:
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
        container[here] = placed(container.get(here), rest, value)
        return container
    container = container if isinstance(container, list) else []
    container.extend([None] * (here + 1 - len(container)))
    container[here] = placed(container[here], rest, value)
    return container
