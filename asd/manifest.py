"""Manifests: what is known about a checkpoint file, so that a training resumes from weights that can be trusted.

Beside `X.ckpt` lies `X.ckpt.asd-manifest.json`. It holds the hash of the file, so a damaged one is noticed, and the
health of every step that went into its weights. A refused update is healthy: it never reached the weights. A
first-level anomaly that was applied taints this checkpoint and all that are trained from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from asd.checkpoint_health import MOST_FLAWS, Flaw, Health
from asd.checkpoint_places import note_checkpoint_place
from asd.errors import StateError
from asd.statefile import write_whole

__all__ = [
    "Flaw", "Health", "Manifest", "checkpoints_in", "digest_of", "load_manifest", "manifest_path", "taint",
    "write_manifest",
]  # fmt: skip

VERSION = 1
_SUFFIX = ".asd-manifest.json"
_BLOCK = 1 << 20
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What is known about one checkpoint file.

    Attributes:
        step: The last step of the training before it, from 0.
        updates: Updates the optimizer had applied by then; fewer than `step` when some were refused.
        sha256: Hash of the checkpoint file, in hex.
        size: Its size in bytes.
        run, rank, host, device: As in `asd.Event`.
        tainted_from: The first step whose first-level anomaly is in these weights; 0 for none.
        anomalies: How many first-level anomalies there were since the checkpoint before.
        flaws: The first of these.
        problems: Problems of the detector since the checkpoint before.
        rule_state: Name of the file with the rule state, beside the checkpoint; empty when there is none.
        time: When it was written, in seconds since the epoch.
    """

    step: int
    updates: int
    sha256: str
    size: int
    run: str
    rank: int
    host: str
    device: str
    tainted_from: int = 0
    anomalies: int = 0
    flaws: tuple[Flaw, ...] = ()
    problems: int = 0
    rule_state: str = ""
    time: float = field(default_factory=time.time)

    @property
    def clean(self) -> bool:
        """Whether no anomaly is in the weights."""
        return not self.tainted_from

    def to_json(self) -> str:
        """One JSON object; `inf` and `nan` become strings."""
        data = asdict(self)
        data["flaws"] = [{**flaw._asdict(), "value": _plain(flaw.value)} for flaw in self.flaws]
        return json.dumps({"version": VERSION, **data}, allow_nan=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Reads what `to_json` wrote.

        Raises:
            StateError: The text is no manifest; the sentence names the field.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise StateError(f"not a manifest: {error}; valid is the JSON object written with a checkpoint.") from error
        found = data.pop("version", None) if isinstance(data, dict) else type(data).__name__
        if type(found) is not int or found != VERSION:
            raise StateError(f"a manifest has version {found!r}; valid is {VERSION}.")
        known = {each.name: _READERS[str(each.type)](each.name, data[each.name]) for each in fields(cls)
                 if each.name in data}  # fmt: skip
        try:
            return cls(**known)
        except TypeError as error:
            raise StateError(f"a manifest lacks a field: {error}.") from error


def manifest_path(checkpoint_file: str | Path) -> Path:
    """Where the manifest of `checkpoint_file` is kept."""
    path = Path(checkpoint_file)
    return path.with_name(path.name + _SUFFIX)


def write_manifest(
    checkpoint_file: str | Path, *, step: int, updates: int, run: str, rank: int, host: str, device: str,
    health: Health, rule_state: str = "", run_dir: Path | None = None,
) -> Path:  # fmt: skip
    """Writes the manifest of a checkpoint file that is complete, and begins a new stretch of `health`.

    Manifests in the same folder whose checkpoint was deleted since are deleted too.

    Args:
        checkpoint_file: The file; it is read once for its hash.
        step: The last step before it, from 0.
        updates: Updates the optimizer had applied by then.
        run: Name of the run.
        rank: Rank of this process.
        host: Name of the machine.
        device: The device of this rank.
        health: What happened since the last checkpoint.
        rule_state: Name of the file with the rule state, beside the checkpoint; empty when there is none.
        run_dir: Where to note the folder of this checkpoint, so that others find it; None for nowhere.

    Raises:
        OSError: The checkpoint can't be read or the manifest not be written; there is none then.
    """
    sha256, size = digest_of(checkpoint_file)
    manifest = Manifest(
        step=step, updates=updates, sha256=sha256, size=size, run=run, rank=rank, host=host, device=device,
        tainted_from=health.tainted_from, anomalies=health.count, flaws=tuple(health.flaws), problems=health.problems,
        rule_state=rule_state,
    )  # fmt: skip
    path = manifest_path(checkpoint_file)
    write_whole(path, manifest.to_json())
    health.begin_next()
    if run_dir is not None:
        note_checkpoint_place(run_dir, rank, path.parent)
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
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise StateError(f"manifest {path} has {path.stat().st_size} bytes; valid are at most {_MOST_BYTES}.")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"manifest {path} can't be read: {getattr(error, 'strerror', None) or error}.") from error
    return Manifest.from_json(text)


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


def _plain(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _bad(name: str, value: object, valid: str) -> StateError:
    return StateError(f"manifest field {name} is {str(value)[:80]!r}; valid is {valid}.")


def _count(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value < 2**63:
        raise _bad(name, value, "a whole number from -1 on")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _bad(name, value, "a text")
    return value


def _number(name: str, value: object) -> float:
    if isinstance(value, str) and value in {"inf", "-inf", "nan"}:
        return float(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _bad(name, value, "a number")
    with contextlib.suppress(OverflowError):
        return float(value)
    raise _bad(name, value, "a number")


def _flaws(name: str, value: object) -> tuple[Flaw, ...]:
    if not isinstance(value, list):
        raise _bad(name, value, "a list")
    return tuple(map(_flaw, value[:MOST_FLAWS]))


def _flaw(value: Mapping[str, Any]) -> Flaw:
    try:
        refused = value["refused"]
        return Flaw(
            _count("step", value["step"]), _text("checkpoint", value["checkpoint"]), _number("value", value["value"]),
            refused is True, _text("event", value["event"]),
        )  # fmt: skip
    except (KeyError, TypeError) as error:
        raise _bad("flaws", value, "a list of anomalies") from error


_READERS: dict[str, Callable[[str, object], Any]] = {
    "int": _count, "str": _text, "float": _number, "tuple[Flaw, ...]": _flaws,
}  # fmt: skip


def checkpoints_in(folders: Iterable[Path]) -> list[Path]:
    """Every checkpoint file below `folders`, manifests or not; each once."""
    found: dict[Path, None] = {}
    for folder in folders:
        for path in [*folder.glob("**/*.ckpt"), *folder.glob("**/*.safetensors")]:
            if path.is_file():
                found[path.absolute()] = None
    return list(found)
