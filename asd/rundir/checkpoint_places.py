"""Where a training keeps its checkpoints: noted in the run directory, so that others find them.

Each rank has a file of its own, `checkpoints-rank0.json`, so no two of them write the same.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from asd.rundir.disk import write_whole

__all__ = ["checkpoint_places", "note_checkpoint_place"]

_MOST = 100


def note_checkpoint_place(run_dir: Path, rank: int, folder: Path) -> None:
    """Notes that `rank` keeps checkpoints in `folder`; costs a file access only when that is new.

    Raises:
        OSError: It can't be written.
    """
    path = run_dir / f"checkpoints-rank{rank}.json"
    known = _read(path)
    place = str(folder.absolute())
    if place not in known:
        write_whole(path, json.dumps([*known, place][-_MOST:]) + "\n")


def checkpoint_places(run_dir: Path) -> list[Path]:
    """Every folder that was noted and is still there, each once; none within another."""
    found = sorted({Path(place) for path in run_dir.glob("checkpoints-rank*.json") for place in _read(path)})
    there = [place for place in found if place.is_dir()]
    return [place for place in there if not any(place != other and place.is_relative_to(other) for other in there)]


def _read(path: Path) -> list[str]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        places = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(places, list):
            return [place for place in places if isinstance(place, str) and "\0" not in place]
    return []
