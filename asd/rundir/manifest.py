"""Manifests of checkpoint files, so that a training resumes from weights that can be trusted.

`X.ckpt.asd-manifest.json` is written beside `X.ckpt`. It has the hash of the file, so that damage is noticed, and the
health of every step behind its weights. A refused update is healthy: it never reached the weights. An applied
first-level anomaly taints this checkpoint and all that are trained from it.

The folders of checkpoints are noted in the run directory, in a file of each rank, `checkpoints-rank0.json`.
"""

import contextlib
import hashlib
import json
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from asd.errors import StateError
from asd.event import Event
from asd.origin import FromOrigin, Origin
from asd.records import Count, Finite, Flag, Text, fill, load, members
from asd.rundir.disk import write_whole
from asd.verdict import Level

VERSION = 1
_SUFFIX = ".asd-manifest.json"
_BLOCK = 1 << 20
_MOST_BYTES = 1 << 20
_MOST_PLACES = 100
PROOFS = {"replicas", "known answers", "audit"}
"""Signs of a device that computes correctly: its replicas have the same weights, a round of known-answer tests passed,
and an audit had the same result."""
_VALID = "the JSON object written with a checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(FromOrigin):
    """Health and hash of one checkpoint file."""

    step: Count  # last step of the training before the checkpoint, from 0
    sha256: Text  # hash of the checkpoint file, in hex
    size: Count  # size of the file in bytes
    origin: Origin  # run, rank, host and device; these are attributes of the manifest too
    tainted_from: Count = 0  # first step whose first-level anomaly is in these weights; 0 for none
    verified: Flag = False  # whether all of `PROOFS` were found since the last verified one
    time: Finite = field(default_factory=time.time)  # time of writing, in seconds since the epoch

    @property
    def clean(self) -> bool:
        """Returns whether the weights have no anomaly in them."""
        return not self.tainted_from

    def to_json(self) -> str:
        """Returns one JSON object."""
        return json.dumps({"version": VERSION, **members(self)}, allow_nan=False, indent=1)


class Health:
    """Health of the weights of a training."""

    def __init__(self, tainted_from: int = 0) -> None:
        self.tainted_from = tainted_from  # first step whose weights may have a first-level anomaly in them; 0 for none
        self.proofs: set[str] = set()  # found `PROOFS` since the last verified manifest
        self.alone = False  # whether there are no other ranks, whose weights could be compared
        # latest checkpoints with a manifest, each with the last step before it
        self.files = deque[tuple[Path, int]](maxlen=_MOST_PLACES)

    def take_proofs(self) -> bool:
        """Returns whether all proofs were found since this was last so, and the weights have no anomaly in them."""
        if self.tainted_from or PROOFS - self.proofs - ({"replicas"} if self.alone else set()):
            return False
        self.proofs.clear()
        return True

    def add(self, event: Event) -> None:
        """Taints the weights if this event of the rank is an applied first-level anomaly."""
        if event.kind == "anomaly" and event.level is Level.ERROR and not event.harmless:
            self.taint(event.step)

    def taint(self, step: int) -> None:
        """Taints the weights from `step` on."""
        self.tainted_from = self.tainted_from or step

    def taint_from(self, step: int) -> Iterator[str]:
        """Taints the weights and what was written from `step` on; yields which manifests can't be written."""
        self.taint(step)
        self.proofs.clear()
        for file in [file for file, last in self.files if last >= step]:
            try:
                taint(file, step)
            except OSError as error:
                yield f"the manifest of {file} can't be written: {error.strerror or error}"


def manifest_path(checkpoint_file: str | Path) -> Path:
    """Returns the path of the manifest of `checkpoint_file`."""
    path = Path(checkpoint_file)
    return path.with_name(path.name + _SUFFIX)


def write_manifest(
    checkpoint_file: str | Path, *, step: int, origin: Origin, health: Health, run_dir: Path | None = None
) -> Path:
    """Writes the manifest of a complete checkpoint file.

    Manifests in the same folder whose checkpoint no longer exists are deleted, with the rule states beside them.
    The file is read once for its hash. `step` is the last one before it, from 0; its folder is noted in `run_dir`.
    """
    sha256, size = digest_of(checkpoint_file)
    tainted = health.tainted_from if health.tainted_from <= step else 0  # it may be written steps later
    manifest = Manifest(step=step, sha256=sha256, size=size, origin=origin, tainted_from=tainted)
    manifest = replace(manifest, verified=health.take_proofs())
    path = manifest_path(checkpoint_file)
    write_whole(path, manifest.to_json())
    health.files.append((Path(checkpoint_file), step))
    if run_dir is not None:
        note_checkpoint_place(run_dir, origin.rank, path.parent)
    for other in path.parent.glob(f"*{_SUFFIX}"):
        name = other.name.removesuffix(_SUFFIX)
        if not other.with_name(name).exists():
            with contextlib.suppress(OSError):
                last = other.lstat().st_mtime  # a newer state is of a file that is being written again
                for state in path.parent.glob("*.asd-rank*.json"):
                    is_its = re.fullmatch(rf"{re.escape(name)}\.asd-rank\d+(-.+)?\.json", state.name)
                    if is_its and state.lstat().st_mtime <= last:
                        state.unlink(missing_ok=True)
                other.unlink()
    return path


def taint(checkpoint_file: str | Path, step: int) -> None:
    """Notes in the manifest of `checkpoint_file`, if it has one, that an anomaly of `step` is in its weights."""
    path = manifest_path(checkpoint_file)
    with contextlib.suppress(StateError):  # without a manifest the file is not trusted
        manifest = load_manifest(path)
        if manifest.clean:
            write_whole(path, replace(manifest, tainted_from=step).to_json())


def load_manifest(path: Path) -> Manifest:
    """Reads the manifest file `path`; raises StateError if it is missing, too large, or not a manifest."""
    return fill(Manifest, load(path, "manifest", _VALID, version=VERSION, most=_MOST_BYTES), f"manifest {path}")


def digest_of(file: str | Path) -> tuple[str, int]:
    """Returns SHA-256 in hex and size in bytes; the file is read block by block."""
    digest, size = hashlib.sha256(), 0
    with Path(file).open("rb", buffering=0) as opened:
        while block := opened.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return digest.hexdigest(), size


def checkpoints_in(folders: Iterable[Path]) -> list[Path]:
    """Returns every checkpoint file below `folders`, with or without manifest, each once."""
    found: dict[Path, None] = {}
    for folder in folders:
        for path in [*folder.glob("**/*.ckpt"), *folder.glob("**/*.safetensors")]:
            if path.is_file():
                found[path.absolute()] = None
    return list(found)


def note_checkpoint_place(run_dir: Path, rank: int, folder: Path) -> None:
    """Notes that `rank` keeps checkpoints in `folder`; writes only if that is new."""
    path = run_dir / f"checkpoints-rank{rank}.json"
    known = _read(path)
    place = str(folder.absolute())
    if place not in known:
        write_whole(path, json.dumps([*known, place][-_MOST_PLACES:]) + "\n")


def checkpoint_places(run_dir: Path) -> list[Path]:
    """Returns every noted folder that exists, each once."""
    found = sorted({Path(place) for path in run_dir.glob("checkpoints-rank*.json") for place in _read(path)})
    return [place for place in found if place.is_dir()]


def _read(path: Path) -> list[str]:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        places = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(places, list):
            return [place for place in places if isinstance(place, str) and "\0" not in place]
    return []
