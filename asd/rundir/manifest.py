"""Manifests: what is known about a checkpoint file, so that a training resumes from weights that can be trusted.

Beside `X.ckpt` lies `X.ckpt.asd-manifest.json`. It holds the hash of the file, so a damaged one is noticed, and the
health of every step that went into its weights. A refused update is healthy: it never reached the weights. A
first-level anomaly that was applied taints this checkpoint and all that are trained from it.

Where the checkpoints are is noted in the run directory, in a file of each rank, `checkpoints-rank0.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from asd.errors import StateError
from asd.event import Event
from asd.origin import FromOrigin, Origin
from asd.records import Count, Finite, Text, fill, load, members
from asd.rundir.disk import write_whole
from asd.verdict import Level

VERSION = 1
_SUFFIX = ".asd-manifest.json"
_BLOCK = 1 << 20
_MOST_BYTES = 1 << 20
_MOST_PLACES = 100
_VALID = "the JSON object written with a checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(FromOrigin):
    """What is known about one checkpoint file.

    Attributes:
        step: The last step of the training before it, from 0.
        sha256: Hash of the checkpoint file, in hex.
        size: Its size in bytes.
        origin: Run, rank, host and device; they can be read from the manifest too.
        tainted_from: The first step whose first-level anomaly is in these weights; 0 for none.
        time: When it was written, in seconds since the epoch.
    """

    step: Count
    sha256: Text
    size: Count
    origin: Origin
    tainted_from: Count = 0
    time: Finite = field(default_factory=time.time)

    @property
    def clean(self) -> bool:
        """Whether no anomaly is in the weights."""
        return not self.tainted_from

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps({"version": VERSION, **members(self)}, allow_nan=False, indent=1)


class Health:
    """Since when the weights can't be trusted.

    Attributes:
        tainted_from: The first step whose weights may have a first-level anomaly in them; 0 for none.
    """

    def __init__(self, tainted_from: int = 0) -> None:
        self.tainted_from = tainted_from

    def add(self, event: Event) -> None:
        """Takes in one event of this rank."""
        if event.kind == "anomaly" and event.level is Level.ERROR and not event.refused:
            self.taint(event.step)

    def taint(self, step: int) -> None:
        """The weights can't be trusted from `step` on."""
        self.tainted_from = self.tainted_from or step


def manifest_path(checkpoint_file: str | Path) -> Path:
    """Where the manifest of `checkpoint_file` is kept."""
    path = Path(checkpoint_file)
    return path.with_name(path.name + _SUFFIX)


def write_manifest(
    checkpoint_file: str | Path,
    *,
    step: int,
    origin: Origin,
    health: Health,
    run_dir: Path | None = None,
) -> Path:
    """Writes the manifest of a checkpoint file that is complete.

    Manifests in the same folder whose checkpoint was deleted since are deleted too.

    Args:
        checkpoint_file: The file; it is read once for its hash.
        step: The last step before it, from 0.
        origin: Where it was trained.
        health: Since when its weights can't be trusted.
        run_dir: Where to note the folder of this checkpoint, so that others find it; None for nowhere.

    Raises:
        OSError: The checkpoint can't be read or the manifest not be written; there is none then.
    """
    sha256, size = digest_of(checkpoint_file)
    manifest = Manifest(
        step=step,
        sha256=sha256,
        size=size,
        origin=origin,
        tainted_from=health.tainted_from,
    )
    path = manifest_path(checkpoint_file)
    write_whole(path, manifest.to_json())
    if run_dir is not None:
        note_checkpoint_place(run_dir, origin.rank, path.parent)
    for other in path.parent.glob(f"*{_SUFFIX}"):
        if not other.with_name(other.name.removesuffix(_SUFFIX)).exists():
            with contextlib.suppress(OSError):
                other.unlink()
    return path


def taint(checkpoint_file: str | Path, step: int) -> None:
    """Says in the manifest of `checkpoint_file`, if it has one, that an anomaly of `step` is in its weights.

    Raises:
        OSError: The manifest can't be written.
    """
    path = manifest_path(checkpoint_file)
    with contextlib.suppress(StateError):  # there is none, and nobody trusts the file then
        manifest = load_manifest(path)
        if manifest.clean:
            write_whole(path, replace(manifest, tainted_from=step).to_json())


def load_manifest(path: Path) -> Manifest:
    """Reads the manifest file `path`.

    Raises:
        StateError: It is missing, too large, or no manifest.
    """
    return fill(Manifest, load(path, "manifest", _VALID, version=VERSION, most=_MOST_BYTES), f"manifest {path}")


def digest_of(file: str | Path) -> tuple[str, int]:
    """SHA-256 in hex, and size in bytes; the file is read block by block.

    Raises:
        OSError: It can't be read.
    """
    digest, size = hashlib.sha256(), 0
    with Path(file).open("rb", buffering=0) as opened:
        while block := opened.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


def checkpoints_in(folders: Iterable[Path]) -> list[Path]:
    """Every checkpoint file below `folders`, manifests or not; each once."""
    found: dict[Path, None] = {}
    for folder in folders:
        for path in [*folder.glob("**/*.ckpt"), *folder.glob("**/*.safetensors")]:
            if path.is_file():
                found[path.absolute()] = None
    return list(found)


def note_checkpoint_place(run_dir: Path, rank: int, folder: Path) -> None:
    """Notes that `rank` keeps checkpoints in `folder`; costs a file access only when that is new.

    Raises:
        OSError: It can't be written.
    """
    path = run_dir / f"checkpoints-rank{rank}.json"
    known = _read(path)
    place = str(folder.absolute())
    if place not in known:
        write_whole(path, json.dumps([*known, place][-_MOST_PLACES:]) + "\n")


def checkpoint_places(run_dir: Path) -> list[Path]:
    """Every folder that was noted and is still there, each once."""
    found = sorted({Path(place) for path in run_dir.glob("checkpoints-rank*.json") for place in _read(path)})
    return [place for place in found if place.is_dir()]


def _read(path: Path) -> list[str]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        places = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(places, list):
            return [place for place in places if isinstance(place, str) and "\0" not in place]
    return []
