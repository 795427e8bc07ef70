"""Which files hold vendor logs, asked anew in every poll: new ones appear, and rotated ones get other names."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["LogFiles", "default_places"]

_LOG = re.compile(
    r"(?:.*\.(?:log|out|err|txt)|(?:std(?:out|err)|messages|syslog|kern|dmesg|info|error|warning)(?:\.log)?)(?:[.-]\d[\d.-]*)?"
    r"|.*\.\d{1,3}\.log|.*\.log\.[A-Za-z]+[.-][\w.-]*\d",
    re.IGNORECASE,
)
_PACKED = (".gz", ".xz", ".bz2", ".zst", ".zip", ".tar", ".tgz", ".lz4")
_ROTATED = re.compile(r"[.-](\d[\d.-]*)")
_NUMBERED = re.compile(r"\.(\d+)(?:\.log)?$", re.ASCII)
_MAGIC = re.compile(r"[*?[]")


def default_places(environ: Mapping[str, str], home: Path) -> list[str]:
    """Where Ascend and MindSpore put their logs: patterns for `LogFiles`.

    Args:
        environ: For `ASCEND_PROCESS_LOG_PATH` and `ASCEND_WORK_PATH`.
        home: Home folder of the user.
    """
    roots = [home / "ascend" / "log"]
    if environ.get("ASCEND_WORK_PATH"):
        roots.insert(0, Path(environ["ASCEND_WORK_PATH"]) / "log")
    if environ.get("ASCEND_PROCESS_LOG_PATH"):
        roots.insert(0, Path(environ["ASCEND_PROCESS_LOG_PATH"]))
    kinds = ("*/device-*/device-*.log*", "*/plog/plog-*.log*", "**/worker_*.log*")
    return [str(Path(glob.escape(str(root))) / kind) for root in roots for kind in kinds] + ["worker_*.log*"]


class LogFiles:
    """Lists the files at some places, with their rotated parts, the older part before the newer.

    Args:
        places: Files, folders, and patterns such as `logs/**/worker_*.log`. Of a folder, with all below it, everything
            that has the name of a log counts.
        without: A folder whose files are never listed: our own.

    Packed files are passed over.

    Attributes:
        unreadable: Folders that could not be listed the last time, with the reason.
    """

    def __init__(self, places: Sequence[str], without: Path | None = None) -> None:
        self.places = places
        self.unreadable: dict[str, str] = {}
        self._without = None if without is None else without.absolute()

    def __call__(self) -> list[Path]:
        """The files that are there now."""
        found: dict[Path, None] = {}
        self.unreadable = {}
        for place in self.places:
            for path in sorted(self._of(place), key=_age):
                if not self._is_ours(path) and not path.name.lower().endswith(_PACKED):
                    found[path] = None
        return list(found)

    def missing(self) -> list[str]:
        """The places at which there is nothing."""
        return [
            place for place in self.places if next(iter(self._of(place)), None) is None and not Path(place).is_dir()
        ]

    def _of(self, place: str) -> Iterable[Path]:
        path = Path(place)
        if path.is_dir():
            return self._below(path)
        if not _MAGIC.search(place) or path.exists():
            return self._parts(path)
        return _matching(place)

    def _below(self, folder: Path) -> Iterator[Path]:
        for root, folders, names in os.walk(folder, onerror=self._hidden):
            folders[:] = [name for name in folders if not name.startswith(".")]
            yield from (Path(root) / name for name in names if _LOG.fullmatch(name))

    def _parts(self, path: Path) -> list[Path]:
        """The file and what it was rotated to, as in `x.log.1`, `x.log-20250826` or `x.1.log`."""
        try:
            names = os.listdir(path.parent)
        except OSError as error:
            self._hidden(error)
            return []
        stem, suffix = path.stem, path.suffix
        return [
            path.parent / name
            for name in names
            if name == path.name
            or (name.startswith(path.name) and _ROTATED.fullmatch(name[len(path.name) :]))
            or (suffix and re.fullmatch(rf"{re.escape(stem)}\.\d+{re.escape(suffix)}", name))
        ]

    def _hidden(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self.unreadable[str(error.filename)] = error.strerror or str(error)

    def _is_ours(self, path: Path) -> bool:
        return self._without is not None and path.absolute().is_relative_to(self._without)


def _matching(pattern: str) -> list[Path]:
    """The files of a pattern and what they were rotated to."""
    found = {
        Path(name)
        for text in (pattern, f"{pattern}.[0-9]*", f"{pattern}-[0-9]*")
        for name in glob.glob(text, recursive=True)
    }
    return [path for path in found if path.is_file()]


def _age(path: Path) -> tuple[str, int, str]:
    """Sorts the parts of one log together, the highest number first."""
    match = _NUMBERED.search(path.name)
    number = int(match[1]) if match and len(match[1]) < 8 else 0
    stem = path.name[: match.start()] if match else path.name
    return (str(path.parent / stem.removesuffix(".log")), -number, path.name)
