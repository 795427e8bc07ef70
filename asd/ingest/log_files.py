"""Which files hold vendor logs, asked anew in every poll: new ones appear, and rotated ones get other names."""

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_LOG = re.compile(
    r"(?:.*\.(?:log|out|err|txt)|(?:std(?:out|err)|messages|syslog|kern|dmesg|info|error|warning)(?:\.log)?)(?:[.-]\d[\d.-]*)?"
    r"|.*\.log\.[A-Za-z]+[.-][\w.-]*\d",
    re.IGNORECASE,
)
_PACKED = (".gz", ".xz", ".bz2", ".zst", ".zip", ".tar", ".tgz", ".lz4")
_KINDS = ("*/device-*/device-*.log*", "*/plog/plog-*.log*", "**/worker_*.log*")


def default_places(environ: Mapping[str, str], home: Path) -> list[str]:
    """Returns patterns of Ascend's and MindSpore's logs for `LogFiles`, by environment and the user's home."""
    work = environ.get("ASCEND_WORK_PATH")
    roots = [environ.get("ASCEND_PROCESS_LOG_PATH"), work and f"{work}/log", f"{home}/ascend/log"]
    return [f"{glob.escape(root)}/{kind}" for root in roots if root for kind in _KINDS] + ["worker_*.log*"]


class LogFiles:
    """Lists the files at some places, with their rotated parts.

    Args:
        places: Files, folders, and patterns such as `logs/**/worker_*.log`. Of a folder, with all below it, everything
            that has the name of a log counts.

    Packed files are passed over.
    """

    def __init__(self, places: Sequence[str]) -> None:
        self.places = places
        self.unreadable: dict[str, str] = {}  # folders that could not be listed the last time, with the reason

    def __call__(self) -> list[Path]:
        """Returns the files that are there now."""
        self.unreadable = {}
        found = [path for place in self.places for path in sorted(self._of(place))]
        return [path for path in dict.fromkeys(found) if not path.name.lower().endswith(_PACKED)]

    def missing(self) -> list[str]:
        """Returns the places at which there is nothing."""
        return [place for place in self.places if not os.path.isdir(place) and next(self._of(place), None) is None]

    def _of(self, place: str) -> Iterator[Path]:
        if os.path.isdir(place):
            for root, folders, names in os.walk(place, onerror=self._hidden):
                folders[:] = [name for name in folders if not name.startswith(".")]
                yield from (Path(root) / name for name in names if _LOG.fullmatch(name))
            return
        pattern = glob.escape(place) if os.path.exists(place) else place
        for each in (pattern, f"{pattern}.[0-9]*", f"{pattern}-[0-9]*"):
            yield from (path for path in map(Path, glob.glob(each, recursive=True)) if not path.is_dir())

    def _hidden(self, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self.unreadable[str(error.filename)] = error.strerror or str(error)
