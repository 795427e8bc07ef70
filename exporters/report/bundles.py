"""Reads the evidence bundles of a run for its report: their files, and the values before an anomaly."""

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from asd.exporters.pictures.values import Point
from asd.regular_file import read_regular

_FOLDER = re.compile(r"rank(\d{1,9})-step(\d{1,18})(?:-\d{1,9})?", re.ASCII)
_LARGEST_CSV = 64 << 20  # bytes
_MOST_HISTORIES = 32
_MOST_BUNDLES = 10_000
_LEVELS = {"normal": "", "second": "second", "first": "first"}


Histories = Mapping[tuple[str, int], Mapping[str, Sequence[Point]]]
"""Values of each checkpoint in the order of steps, by folder of the run and rank."""


@dataclass(frozen=True, slots=True)
class SavedBundle:
    """Folder of evidence."""

    path: Path  # the folder
    rank: int  # rank of the anomaly
    step: int  # step of the anomaly

    @property
    def folder(self) -> str:
        """Returns the name of the folder of its run."""
        return self.path.parent.name

    def files(self) -> list[tuple[Path, int]]:
        """Returns its files and their sizes in bytes, by name."""
        return sorted((path, path.stat().st_size) for path in self.path.iterdir() if path.is_file())


def find_bundles(run_dir: Path, unreadable: dict[str, str]) -> list[SavedBundle]:
    """Returns the evidence folders under `run_dir`, by run, rank and step; adds errors to `unreadable`."""
    found: list[SavedBundle] = []
    root = run_dir / "evidence"
    try:
        folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
        for folder in sorted(folders):
            for path in folder.iterdir():
                match = _FOLDER.fullmatch(path.name)
                if match is not None and path.is_dir() and len(found) < _MOST_BUNDLES:
                    found.append(SavedBundle(path, int(match[1]), int(match[2])))
    except OSError as error:
        unreadable[str(error.filename or root)] = error.strerror or str(error)
    return sorted(found, key=lambda bundle: (bundle.folder, bundle.rank, bundle.step))


def read_histories(bundles: Iterable[SavedBundle], unreadable: dict[str, str]) -> Histories:
    """Returns the values in the bundles of each rank's first and last anomaly, joined.

    A bundle has some hundred steps before its anomaly, so these two show the beginning and the present state.
    """
    by_rank: dict[tuple[str, int], list[SavedBundle]] = {}
    for bundle in bundles:
        by_rank.setdefault((bundle.folder, bundle.rank), []).append(bundle)
    firsts = [found[0] for found in by_rank.values()]
    lasts = [found[-1] for found in by_rank.values() if len(found) > 1]
    points: dict[tuple[str, int], dict[str, dict[int, Point]]] = {}
    for bundle in [*firsts, *lasts][:_MOST_HISTORIES]:
        sites = points.setdefault((bundle.folder, bundle.rank), {})
        for checkpoint, point in _read_values(bundle, unreadable):
            known = sites.setdefault(checkpoint, {})
            if point.step not in known or not known[point.step].level:  # a later result must not hide a bad value
                known[point.step] = point
    return {
        rank: {name: [site[step] for step in sorted(site)] for name, site in sites.items()}
        for rank, sites in points.items()
    }


def _read_values(bundle: SavedBundle, unreadable: dict[str, str]) -> Iterator[tuple[str, Point]]:
    path, bad = bundle.path / "values.csv", 0
    try:
        text = read_regular(path, _LARGEST_CSV).decode(errors="replace").replace("\0", "")
        for row in csv.DictReader(text.splitlines(keepends=True)):
            point = _point(row)
            if point is None:
                bad += 1
            else:
                yield row["checkpoint"], point
    except FileNotFoundError:
        pass  # it is being written
    except (OSError, csv.Error) as error:
        unreadable[_short(path)] = getattr(error, "strerror", None) or str(error)
    if bad:
        rows = "row has" if bad == 1 else "rows have"
        unreadable[_short(path)] = f"{bad} {rows} no step, checkpoint, value and limit."


def _point(row: Mapping[str, str | None]) -> Point | None:
    try:
        step, value, limit = int(row["step"] or ""), float(row["value"] or ""), float(row["limit"] or "")
    except (KeyError, ValueError, TypeError):
        return None
    if not row.get("checkpoint") or abs(step) >= 1 << 63:
        return None
    return Point(step, value, math.inf if math.isnan(limit) else limit, _LEVELS.get(row.get("level") or "", ""))


def _short(path: Path) -> str:
    return "/".join(path.parts[-4:])
