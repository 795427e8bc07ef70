"""From the journal of a dump to its JSON files: at the end of a step, and later for a run that was killed in one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from asd.dumps.formats.journal_file import JOURNAL, Gathered, read_journal
from asd.rundir.disk import lock, write_whole

__all__ = ["finish", "recover", "write_files"]


def recover(folder: Path) -> list[Path]:
    """Makes readable dumps of all journals that killed runs left under `folder`; those of living runs stay.

    Args:
        folder: The `dump_path` of the runs, or any folder in it.

    Returns:
        The folders that hold a `dump.json` now.

    Raises:
        StateError: A journal is not one.
        OSError: A file can't be read or written.
    """
    found = sorted(path.parent for path in folder.rglob(JOURNAL) if not _is_written(path))
    for rank_folder in found:
        finish(rank_folder)
    return found


def _is_written(journal: Path) -> bool:
    with contextlib.suppress(OSError), journal.open("rb") as file:
        return not lock(file.fileno())
    return False  # gone, or on a file system without locks


def finish(folder: Path) -> None:
    """Writes `dump.json`, `stack.json` and `construct.json` of the journal in `folder`, and removes the journal.

    Raises:
        StateError: The journal is not one.
        OSError: A file can't be read or written; the journal is still there.
    """
    write_files(read_journal(folder / JOURNAL), folder)


def write_files(gathered: Gathered, folder: Path) -> None:
    """Writes the three files into `folder`, `dump.json` last, and removes the journal. Each call has a line of its own.

    A power failure may take what was written in the last seconds, as it may take the last lines of a journal; the
    end of a process takes nothing.

    Raises:
        OSError: A file can't be written; the journal is still there.
    """
    frames = {number: json.dumps(lines) for number, lines in gathered.frames.items()}  # many calls share a stack
    stacks = _object((name, frames.get(number, "[]")) for name, number in gathered.stacks.items())
    data = _object((name, json.dumps(entry)) for name, entry in gathered.data.items())
    head = [(name, json.dumps(value)) for name, value in gathered.head.items()]
    write_whole(folder / "stack.json", stacks, flush=False)
    parents = _object((name, json.dumps(parent)) for name, parent in gathered.parents.items())
    write_whole(folder / "construct.json", parents, flush=False)
    write_whole(folder / "dump.json", _object([*head, ("data", data)]))
    (folder / JOURNAL).unlink()


def _object(members: Iterable[tuple[str, str]]) -> str:
    """The text of an object, a member a line, of names and the texts of their values."""
    lines = ",\n".join(f"{json.dumps(name)}: {text}" for name, text in members)
    return f"{{\n{lines}\n}}" if lines else "{}"
