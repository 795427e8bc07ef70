"""Counts the lines of each room beside its bound: `make size`.

The bound of a room is what it had when it was last counted, and only shrinks; its budget is what it is to come to.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ("asd", "operators", "exporters")
SUFFIXES = {".py", ".cpp", ".h"}
SLACK = 50
"""Lines that a bound may be exceeded by, so that one line more fails nothing."""


class Room(NamedTuple):
    """Folders or files that are counted together."""

    name: str
    # its folders and files from the root of the checkout. A place inside another's is not counted there
    places: tuple[str, ...]
    most: int  # the most lines it may have, but for `SLACK`
    budget: int  # the lines it is to have in version 1.0

    @property
    def bound(self) -> int:
        """The lines from which on it is too large."""
        return self.most + SLACK


RERUN = ("operators/rerun", "operators/sensors/sampled", "operators/selftest")
DRILL = ("operators/drill", "asd/injection.py", "asd/drill", "asd/cli/train/drill.py", "exporters/report/drill.py")
ROOMS = (
    Room("asd", ("asd",), 1687, 1700),
    Room("asd/rules, judge, diagnosis", ("asd/rules", "asd/judge", "asd/diagnosis"), 3218, 3300),
    Room("asd/rundir", ("asd/rundir",), 1395, 1500),
    Room("asd/handler", ("asd/handler",), 3578, 3400),
    Room("asd/supervisor, ingest, tuning", ("asd/supervisor", "asd/ingest", "asd/tuning"), 1954, 1900),
    Room("asd/dumps", ("asd/dumps",), 4768, 5000),
    Room("asd/cli", ("asd/cli",), 2757, 2800),
    Room("operators", ("operators",), 7380, 7000),
    Room("operators/rerun and the like", RERUN, 3660, 3600),
    Room("drills", DRILL, 2100, 1200),
    Room("operators/debugger, ptdbg", ("operators/debugger", "operators/ptdbg.py"), 2929, 3000),
    Room(
        "exporters of files",
        tuple(f"exporters/{name}" for name in ("run_files", "bundle", "report", "pictures")),
        2421,
        2600,
    ),
    Room("exporters of the network", ("exporters",), 3776, 4200),
    Room("tests", ("tests",), 38950, 36000),
    Room("benchmarks", ("benchmarks",), 5425, 5500),
)
NO_SOURCE = ("tests", "benchmarks")
"""Rooms that are no part of what is installed."""
BUDGET_SOURCE = 40_100
MOST_SOURCE, MOST_FILES = 41_790, 360
"""Lines and files of source when they were last counted, which only shrink; in version 1.0 the budget and 360 files."""


def source_files(*folders: str) -> list[Path]:
    """The files of source below folders, each once: two links inside `asd` are left out."""
    return sorted(
        path.relative_to(ROOT) for folder in folders for path in _walk(ROOT / folder) if path.suffix in SUFFIXES
    )


def texts() -> list[tuple[Path, str]]:
    """Each Python file of the source, and its text."""
    return [(path, (ROOT / path).read_text(encoding="utf-8")) for path in source_files(*SOURCE) if path.suffix == ".py"]


def _walk(place: Path) -> Iterator[Path]:
    for child in place.iterdir():
        if child.is_dir() and not child.is_symlink():
            yield from _walk(child)
        elif not child.is_dir():
            yield child


def room_of(path: Path) -> Room:
    """The room with the longest place that holds a file."""
    text = path.as_posix()
    found = [(len(place), room) for room in ROOMS for place in room.places if f"{text}/".startswith(f"{place}/")]
    return max(found)[1]


def lines() -> dict[Room, int]:
    """The lines of each room."""
    counted = dict.fromkeys(ROOMS, 0)
    for path in source_files(*SOURCE, "tests", "benchmarks"):
        counted[room_of(path)] += len((ROOT / path).read_text(encoding="utf-8").splitlines())
    return counted


def main() -> int:
    """Prints each room's lines, the most it may have and its budget."""
    counted = lines()
    print(f"{'lines':>7} {'at most':>8} {'budget':>7}  room")
    for room, number in counted.items():
        mark = "  TOO LARGE" if number > room.bound else ""
        print(f"{number:7,} {room.most:8,} {room.budget:7,}  {room.name}{mark}")
    source = sum(number for room, number in counted.items() if room.name not in NO_SOURCE)
    print(f"{source:7,} {MOST_SOURCE:8,} {BUDGET_SOURCE:7,}  source in {len(source_files(*SOURCE))} files")
    return int(any(number > room.bound for room, number in counted.items()) or source > MOST_SOURCE + SLACK)


if __name__ == "__main__":
    sys.exit(main())
