"""Rule state on disk: whole or not at all.

A file holds one JSON object. It is written beside its place, synced, and renamed, so a reader sees the old state or the
new one and never half of either, even after a power cut.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
from pathlib import Path
from typing import Any

from asd.errors import StateError

__all__ = ["load_state", "save_state", "write_whole"]

VERSION = 1
MAX_BYTES = 256 * 1024 * 1024


def write_whole(path: Path, content: str | bytes, *, flush: bool = True) -> None:
    """Writes `content`, a text as UTF-8, to `path` so that the file is never seen half written.

    Args:
        path: Where.
        content: All of the file.
        flush: Wait until it is on the disk. Without, a power failure may leave an empty file; a killed process may not.

    Raises:
        OSError: The disk is full or the folder can't be written; what was at `path` before is still there. It names
            `path`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile: its files are for one user alone, whatever the umask says.
    name = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    try:
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            if flush:
                os.fsync(file.fileno())
        name.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            name.unlink()
        if isinstance(error, OSError) and error.errno:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    if not flush:
        return
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


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
    try:
        if path.stat().st_size > MAX_BYTES:
            raise StateError(f"state file {path} has {path.stat().st_size} bytes; valid are at most {MAX_BYTES}.")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StateError(f"state file {path} can't be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise StateError(
            f"state file {path} is corrupt: {error}; valid is the JSON written with the checkpoint."
        ) from error
    found = content.get("version") if isinstance(content, dict) else type(content).__name__
    if type(found) is not int or found != VERSION:
        raise StateError(f"state file {path} has version {found!r}; valid is {VERSION}.")
    del content["version"]
    decoded: dict[str, Any] = _decode(content)
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
