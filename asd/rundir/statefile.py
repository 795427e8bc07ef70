"""Rule state on disk: one JSON object in a file, which may contain `NaN` and `Infinity`."""

import json
from pathlib import Path
from typing import Any

from asd.records import load
from asd.rundir.disk import write_whole

VERSION = 1
MAX_BYTES = 256 * 1024 * 1024


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Saves the result of `Monitor.state`."""
    write_whole(path, json.dumps({"version": VERSION, **state}))


def load_state(path: Path) -> dict[str, Any]:
    """Reads a file of `save_state`; raises StateError."""
    return load(path, "state file", "the JSON written with the checkpoint", version=VERSION, most=MAX_BYTES)
