"""Picks the checkpoint to resume from: the newest one whose steps are all healthy and whose bytes are unchanged.

Without one, the newest complete one without a bad manifest.
"""

import json
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from asd.errors import StateError
from asd.rundir.manifest import Manifest, checkpoints_in, digest_of, load_manifest, manifest_path

_PARTS = b"\n"  # each part of a `.ckpt` begins with it, and its length
_CRC, _CRC_DIGITS = b"crc_num", 10
_LONGEST_HEAD = 100 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome of a search."""

    path: Path | None  # the checkpoint file; None when there is none
    manifest: Manifest | None  # what is known about it; None when nothing is
    reason: str  # which and why, in one sentence
    skipped: tuple[str, ...] = ()  # one sentence for each newer file that was passed over, the newest first

    @property
    def step(self) -> int:
        """The last step in the checkpoint; 0 for a training that begins, -1 when it is not known."""
        if self.manifest is not None:
            return self.manifest.step
        return 0 if self.path is None else -1


def last_good(
    folders: Path | str | Sequence[Path],
    *,
    distrusted: Mapping[str, int] | None = None,
    runs: Collection[str] | None = None,
    since: float = 0.0,
    only_step: int | None = None,
    rank: int | None = None,
    ranks: float = math.inf,
    together: bool = False,
    verified: bool = False,
) -> Choice:
    """Picks the checkpoint to resume from.

    Args:
        folders: Where to search, sub-folders included.
        distrusted: By the name of a run the first step of it that is not trusted.
        runs: Only checkpoints of these runs; None for all.
        since: Of checkpoints without a manifest only those written since, in seconds since the epoch.
        only_step: Only checkpoints of this step.
        rank: Of several checkpoints of one step the one this rank wrote is preferred.
        ranks: Number of ranks now: checkpoints of further ranks, as of a larger job, do not count.
        together: Ranks that write a checkpoint each must resume from the same step: only a step counts that every rank
            has that wrote a manifest in the run of the newest one, or in any run if there is only one step of that run.
        verified: Verified checkpoints come first, as after a permanent fault.
    """
    places = [Path(folders)] if isinstance(folders, (str, Path)) else list(folders)
    search = _Search(places, distrusted or {}, runs, since)
    search.known = [item for item in search.known if item[0].rank < ranks]
    skipped, spare = list(search.unreadable), None
    for manifest, path in search.newest_first(rank, only_step):
        flaw = "it is not verified"
        if spare is None or manifest.verified:  # else not all of it is read
            flaw = search.flaw(manifest, path) or (search.missing(manifest) if together else "")
        if not flaw:
            choice = Choice(path, manifest, _why(manifest, path, search.first_sign(manifest.run)), tuple(skipped))
            if manifest.verified or not verified:
                return choice
            spare, flaw = choice, "it is not verified"
        skipped.append(f"{path} (step {manifest.step}) is skipped: {flaw}.")
    return spare or _without_manifest(search, places, skipped, only_step, together=together)


def _without_manifest(
    search: "_Search", places: Sequence[Path], skipped: list[str], only_step: int | None, *, together: bool
) -> Choice:
    """Picks the newest whole checkpoint without a manifest; none is a reason to begin anew."""
    whole = []
    for path in sorted(search.bare, key=_modified, reverse=True):
        flaw = _torn(path) if only_step is None else "it has no manifest, so its step is not known"
        if flaw:
            skipped.append(f"{path} is skipped: {flaw}.")
        else:
            whole.append(path)
    if whole:
        # Ranks that write into a folder each have one of the same name there.
        writing = {path.parent for path in whole if together}
        in_all = [path for path in whole if writing <= {each.parent for each in whole if each.name == path.name}]
        newest = (in_all or whole)[0]
        return Choice(newest, None, f"{newest} has no manifest; there is nothing better.", tuple(skipped))
    where = ", ".join(map(str, places)) or "any folder"
    return Choice(None, None, f"there is no good checkpoint in {where}: the training starts at step 1.", tuple(skipped))


def ranks_that_save(folder: Path, runs: Collection[str]) -> set[int]:
    """Returns the ranks that wrote a manifest in `folder` in one of these runs."""
    return {manifest.rank for manifest, _ in _Search([folder], {}, runs).known}


class _Search:
    """The checkpoints that are there, and what is wrong with each."""

    def __init__(
        self, folders: Sequence[Path], distrusted: Mapping[str, int], runs: Collection[str] | None, since: float = 0.0
    ) -> None:
        self.known: list[tuple[Manifest, Path]] = []
        self.bare: list[Path] = []
        self.unreadable: list[str] = []
        self.first_sign = distrusted.get
        self._damage: dict[Path, str] = {}
        for path in checkpoints_in(folders):
            if not manifest_path(path).exists():
                self.bare += [path] if _modified(path) >= since else []
                continue
            try:
                self.known.append((load_manifest(manifest_path(path)), path))
            except StateError as error:
                self.unreadable.append(f"{path} is skipped: {error}")
        self.known = [item for item in self.known if runs is None or item[0].run in runs]  # not what others have left

    def newest_first(self, rank: int | None, only_step: int | None) -> list[tuple[Manifest, Path]]:
        """Sorts by when a run wrote a step last; within a step `rank` comes first, then the lowest rank."""
        last = {(each.run, each.step): each.time for each, _ in sorted(self.known, key=lambda item: item[0].time)}
        known = [item for item in self.known if only_step in (None, item[0].step)]
        known.sort(key=lambda item: (item[0].rank == rank, -item[0].rank, item[0].time), reverse=True)
        if only_step is None:
            known.sort(key=lambda item: last[item[0].run, item[0].step], reverse=True)
        return known

    def flaw(self, manifest: Manifest, path: Path) -> str:
        """Returns why this one cannot be used, without a full stop; empty when it can."""
        if manifest.tainted_from:
            return f"a first-level anomaly of step {manifest.tainted_from} is in its weights"
        first = self.first_sign(manifest.run)
        if first is not None and manifest.step >= first:
            return f"the fault showed first in step {first}"
        if path not in self._damage:
            self._damage[path] = _damage(manifest, path)
        return self._damage[path]

    def missing(self, manifest: Manifest) -> str:
        """Returns in words which rank lacks a good checkpoint of the same step; empty when none does."""
        newest = max(self.known, key=lambda item: item[0].time)[0].run
        # A rank may have died in its first save there; where there are more steps of others, it saves no more.
        is_short = len({other.step for other, _ in self.known if other.run == newest}) == 1
        for rank in sorted({other.rank for other, _ in self.known if is_short or other.run == newest}):
            same = [item for item in self.known if item[0].rank == rank and item[0].step == manifest.step]
            if not any(not self.flaw(*item) for item in same):
                return f"rank {rank} has no good checkpoint of this step"
        return ""


def _damage(manifest: Manifest, path: Path) -> str:
    """Returns the damage of a file in words; empty when it is as written."""
    try:
        size = path.stat().st_size
        if size != manifest.size:
            return f"it has {size} bytes and was written with {manifest.size}"
        found, _ = digest_of(path)
    except OSError as error:
        return f"it can't be read ({error.strerror or error})"
    return f"its SHA-256 is {found[:16]}... and was {manifest.sha256[:16]}..." if found != manifest.sha256 else ""


def _why(manifest: Manifest, path: Path, first_sign: int | None) -> str:
    fault = f", before the fault's first sign in step {first_sign}" if first_sign is not None else ""
    newest = f"{path} is the newest checkpoint without a fault (step {manifest.step}{fault})"
    return f"{newest}; its SHA-256 is that of its manifest."


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _torn(path: Path) -> str:
    """Returns why the file can't be read, without a full stop; empty when all of its parts are there."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            is_whole = (_has_tensors if path.suffix == ".safetensors" else _has_parts)(file, size)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return f"it can't be read ({getattr(error, 'strerror', '') or error})"
    return "" if is_whole and size else f"it ends before its end, with {size} bytes"


def _has_parts(file: BinaryIO, size: int) -> bool:
    """Follows a `.ckpt`: a part for each parameter, in the wire form of protobuf, and maybe a sum of its bytes."""
    position = 0
    while position < size:
        file.seek(position)
        head = file.read(11)
        if head.startswith(_CRC):
            return size - position == len(_CRC) + _CRC_DIGITS
        if head[:1] != _PARTS:
            raise ValueError("it is no checkpoint")
        used = next((count for count, byte in enumerate(head[1:], 1) if byte < 0x80), 0)
        length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(head[1 : 1 + used]))
        position += 1 + used + length if used else size + 1
    return position == size


def _has_tensors(file: BinaryIO, size: int) -> bool:
    """Compares the size of a `.safetensors` with the ends of the tensors in its head."""
    length = int.from_bytes(file.read(8), "little")
    if length > min(size, _LONGEST_HEAD):
        return False
    tensors = json.loads(file.read(length))
    ends = [int(each["data_offsets"][1]) for name, each in tensors.items() if name != "__metadata__"]
    return size == 8 + length + max(ends, default=0)
