"""Rule state on disk, one JSON object in a file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from asd.records import load
from asd.rundir.disk import write_whole

__all__ = ["load_state", "save_state"]

VERSION = 1
MAX_BYTES = 256 * 1024 * 1024


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Saves what `Monitor.state` returned.

    Raises:
        OSError: As `write_whole`.
    """
    write_whole(path, json.dumps({"version": VERSION, **_encode(state)}, allow_nan=False))


def load_state(path: Path) -> dict[str, Any]:
    """Reads what `save_state` wrote.

    Raises:
        StateError: The file is missing, too large, not such a state, or of another version.
    """
    valid = "the JSON written with the checkpoint"
    decoded: dict[str, Any] = _decode(load(path, "state file", valid, version=VERSION, most=MAX_BYTES))
    return decoded


def _encode(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"float"} and value["float"] in ("inf", "-inf", "nan"):
            return float(value["float"])
        return {key: _decode(item) for key, item in value.items()}
    return value
