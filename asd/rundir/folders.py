"""Finds the folders of runs below a root, as jobs come and go.

A folder with an unchanged time of change has the same names, so that a repeated look costs one `stat` each.
"""

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from asd.rundir.names import WITHIN_A_RUN, event_files_among, is_of_a_rank, status_files, status_files_among

_DEPTH = 3  # levels below a root, such as TEAM/JOB/ATTEMPT
_MOST = 10_000
_SETTLED = 2.0  # seconds; a folder changed more recently may change without a new time of change
_ANEW = 30.0  # seconds after which a folder is re-read in any case: not every file system keeps times well


class _Seen(NamedTuple):
    """Content of a folder when it was read."""

    changed: int  # time of change in nanoseconds; 0 when another change may not show in it
    read: float  # time of the reading, in seconds since any point
    is_run: bool  # whether ranks, or `asd ingest`, wrote there
    below: tuple[Path, ...]  # folders in it that may be, or contain, folders of runs
    logs: tuple[Path, ...]  # its event logs, the older part of a rotated one before the newer
    statuses: tuple[Path, ...]  # the statuses of its ranks


_NOTHING = _Seen(0, 0.0, is_run=False, below=(), logs=(), statuses=())


class RunFolders:
    """The roots and, up to three levels below them, every folder into which a rank wrote.

    Hidden folders, links, and a run's own subfolders are skipped. A folder that cannot be read at the moment keeps its
    earlier content.

    Args:
        roots: Folders to search; they need not exist.
    """

    def __init__(self, roots: Iterable[Path]) -> None:
        self.roots = list(dict.fromkeys(roots))  # folders to search, each once
        self.found = 0  # number of folders with files of ranks, at the last look
        self.unreadable: dict[str, str] = {}  # folders that could not be read at the last look, with the reason
        self._seen: dict[Path, _Seen] = {}

    def look(self) -> list[Path]:
        """Returns the current folders, the roots first."""
        self.unreadable = {}
        seen: dict[Path, _Seen] = {}
        for root in self.roots:
            for folder in self._walk(root):
                if folder in seen:
                    continue
                if len(seen) >= _MOST:
                    self.unreadable[str(root)] = f"it has more than {_MOST} folders; the others are left out"
                    break
                seen[folder] = self._seen[folder]
        self._seen = seen
        runs = [folder for folder, known in seen.items() if known.is_run]
        self.found = len(runs)
        return list(dict.fromkeys([*self.roots, *runs]))

    def event_files(self) -> list[Path]:
        """Returns every event log in the current folders."""
        return [path for folder in self.look() for path in self._seen[folder].logs]

    def status_files(self, folder: Path) -> list[Path]:
        """Returns the statuses in a folder of the last look; raises OSError if the folder cannot be read."""
        if str(folder) in self.unreadable:
            return status_files(folder)
        return list(self._seen.get(folder, _NOTHING).statuses)

    @property
    def complaint(self) -> str:
        """Returns a message for users if no run was found; empty otherwise."""
        if self.found:
            return ""
        places = ", ".join(map(str, self.roots))
        where = "one of these" if len(self.roots) > 1 else "that folder"
        return (
            f"no run was found in {places} or below; a training writes there when its ASD_RUN_DIR is {where} or one in "
            "it"
        )

    def _walk(self, root: Path) -> Iterator[Path]:
        """Yields the known runs first, so that other folders cannot hide them, then every folder level by level."""
        runs = [path for path, known in self._seen.items() if known.is_run and _is_below(path, root)]
        for run in runs:
            self._seen[run] = self._read(run)
            yield run
        done, level = set(runs), [root]
        for depth in range(_DEPTH + 1):
            below: list[Path] = []
            for folder in level:
                known = self._seen[folder] = self._seen[folder] if folder in done else self._read(folder)
                yield folder
                below += known.below if depth < _DEPTH else ()
            level = below

    def _read(self, folder: Path) -> _Seen:
        known, now = self._seen.get(folder, _NOTHING), time.time()
        try:
            changed = os.stat(folder).st_mtime_ns
            if known.changed == changed and 0 <= now - known.read < _ANEW:
                return known
            with os.scandir(folder) as entries:
                names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            files = [folder / name for name, is_folder in names.items() if not is_folder]
            statuses = status_files_among(files)
        except (FileNotFoundError, NotADirectoryError):
            return _NOTHING
        except OSError as error:
            self.unreadable[str(folder)] = error.strerror or str(error)
            return known
        is_run = any(is_of_a_rank(path.name) for path in files)
        left_out = WITHIN_A_RUN if is_run else ()
        below = [folder / name for name, is_folder in sorted(names.items()) if is_folder]
        below = [path for path in below if path.name[0] != "." and path.name not in left_out]
        settled = now - changed / 1e9 > _SETTLED
        logs = event_files_among(files)
        return _Seen(changed if settled else 0, now, is_run, tuple(below), tuple(logs), tuple(statuses))


def _is_below(path: Path, root: Path) -> bool:
    """Returns whether a path leads into a folder without symbolic links."""
    way = [path, *path.parents]
    return root in way and not any(os.path.islink(each) for each in way[: way.index(root)])
