"""Stores the rule state beside the training's checkpoint files, finds it, and picks the checkpoint to resume from."""

import contextlib
import logging
import os
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from mindspore.train import Callback, ModelCheckpoint

from asd.config import Config
from asd.errors import StateError
from asd.event import Event
from asd.operators.private.cells import checkpoint_folder
from asd.rundir.last_good import last_good, ranks_that_save
from asd.rundir.manifest import load_manifest, manifest_path, note_checkpoint_place
from asd.rundir.names import event_file
from asd.rundir.statefile import load_state
from asd.supervisor.record import load_record

_LOG = logging.getLogger("asd.resume")
_MOST_READ = 1 << 20
_MOST_BEGUN = 16  # files that are being written


def state_path(checkpoint_file: str | Path, rank: int, label: str = "") -> Path:
    """Returns the path of a checkpoint file's state: `a.ckpt.asd-rank0.json` for `a.ckpt`, or `...-LABEL.json`."""
    path = Path(checkpoint_file)
    return path.with_name(f"{path.name}{_ending(rank, label)}")


def _ending(rank: int, label: str) -> str:
    return f".asd-rank{rank}-{label}.json" if label else f".asd-rank{rank}.json"


class CheckpointWatch:
    """Notices that one of the training's `ModelCheckpoint` callbacks has written a file."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._writers = [callback for callback in callbacks if isinstance(callback, ModelCheckpoint)]
        self._seen = {id(writer): self._latest(writer) for writer in self._writers}
        self._begun: list[tuple[Path, int]] = []

    def folders(self) -> list[Path]:
        """Returns the folders that these callbacks write to."""
        return [Path(folder) for writer in self._writers if (folder := checkpoint_folder(writer))]

    def new_files(self, step: int) -> list[Path]:
        """Files of which the writing has begun since the last call, after `step`; with `async_save` it goes on."""
        files = []
        for writer in self._writers:
            latest = self._latest(writer)
            if latest and latest != self._seen[id(writer)]:
                self._seen[id(writer)] = latest
                files.append(Path(latest))
        self._begun = [*self._begun, *((file, step) for file in files)][-_MOST_BEGUN:]
        return files

    def complete_files(self) -> list[tuple[Path, int]]:
        """Files of which the writing has ended since the last call, each with the last step before it."""
        done = [each for each in self._begun if each[0].exists()]
        self._begun = [each for each in self._begun if each not in done]
        return done

    @staticmethod
    def _latest(writer: ModelCheckpoint) -> str:
        return str(writer.latest_ckpt_file_name or "")


def state_to_resume(
    resume_from: str | Path | None, folders: Sequence[Path], rank: int, updates: int, label: str, loaded: Path | None
) -> dict[str, Any] | None:
    """Returns the rule state of a resumed training, or None for a new one.

    Args:
        resume_from: The checkpoint file to continue from; None to search.
        folders: Where to search for the newest state after which the optimizer had made `updates` steps. Refused
            steps do not count, so they may be fewer than the steps of the training. Damaged files are skipped.
        rank: Rank of this process.
        updates: Steps the optimizer has made already; 0 for a training that begins.
        label: Of the monitor among those of its process.
        loaded: The file that the optimizer's step was loaded from; the state beside it has priority.

    Raises:
        StateError: There is no such state, or the one beside `resume_from` is damaged.
    """
    if resume_from is not None:
        return load_state(state_path(resume_from, rank, label))
    if updates == 0:
        return None
    files = [file for folder in folders for file in folder.glob(f"**/*{_ending(rank, label)}")]
    files.sort(key=lambda file: file.stat().st_mtime, reverse=True)
    for file in [state_path(loaded, rank, label), *files] if loaded is not None else files:
        with contextlib.suppress(StateError):
            state = load_state(file)
            if state.get("updates") == updates:
                return state
    raise StateError(f"resumed at step {updates} without a rule state of that step.")


def ends_before(run_dir: Path, rank: int) -> dict[int, dict[str, Event]]:
    """Returns first-level anomalies of earlier attempts, by step and checkpoint, from the last MB of the rank's log.

    Anomalies that a rerun attributed to hardware are left out: a recurrence in a new process is not the device's.
    """
    events, found = [], dict[int, dict[str, Event]]()
    with contextlib.suppress(OSError), event_file(run_dir, rank).open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - _MOST_READ))
        for line in log.read().splitlines():
            if b'"first"' in line:
                with contextlib.suppress(StateError, UnicodeDecodeError):
                    events.append(Event.from_json(line.decode()))
    by_hardware = {(event.run, event.step) for event in events if event.verdict in ("transient", "persistent")}
    for event in events:
        is_known = event.kind == "anomaly" and event.rule == "adaptive" and event.step > 0 and isfinite(event.value)
        if is_known and (event.run, event.step) not in by_hardware:
            found.setdefault(event.step, {})[event.checkpoint] = event
    return found


def checkpoint_to_resume(folder: str | Path, *, rank: int = 0, config: Config | None = None) -> Path | None:
    """Returns the checkpoint file that a training should load before its first step, or None for a new training.

    Under `asd run --ranks` that is the one which the supervisor chose for all ranks: of the newest step that is older
    than the fault's first sign; it looks in every `folder` that was given here, and in those of manifests. Elsewhere it
    is the newest one in `folder` that is healthy and undamaged. Its manifest decides, see `asd.rundir.manifest`;
    without one it has to be whole. Which one, why, and which are left out goes to the log `asd.resume`.

        checkpoint = checkpoint_to_resume("checkpoints")
        if checkpoint is not None:
            mindspore.load_checkpoint(str(checkpoint), net)

    Args:
        folder: Where this rank keeps its checkpoints, sub-folders included.
        rank: Rank of this process; among checkpoints of one step, its own is taken.
        config: From the environment if not given.

    Raises:
        StateError: The supervisor's record is damaged, or this rank has checkpoints, but none of the step.
    """
    config = config if config is not None else Config.of_process()
    record = load_record(Path(config.run_dir))
    attempt = record.attempt(config.run) if record is not None and config.run else None
    if record is None or attempt is None or attempt.judged:  # one that has ended is not of this process
        choice = last_good(Path(folder), rank=rank, distrusted=record.distrusted if record is not None else None)
    else:
        with contextlib.suppress(OSError):  # the supervisor looks there too when it goes on after this attempt
            note_checkpoint_place(Path(config.run_dir), rank, Path(folder))
        if not attempt.resume_from:
            return None
        chosen, step = Path(attempt.resume_from), attempt.resume_step
        runs = record.runs()
        with contextlib.suppress(StateError):  # a file that a user named may be of an earlier job
            runs.add(load_manifest(manifest_path(chosen)).run)
        choice = last_good(Path(folder), distrusted=record.distrusted, runs=runs, only_step=step, rank=rank)
        own = choice.manifest is not None and choice.manifest.rank == rank
        if not own and step > 0 and rank in ranks_that_save(Path(folder), runs):
            raise StateError(f"rank {rank} saves checkpoints in {folder}, but has no good one of step {step} there.")
        if not own:  # one rank writes for all, or nothing is known about the file but that it is there
            beside = Path(folder, chosen.name)
            return beside if step < 0 and beside.is_file() else chosen
    for sentence in choice.skipped:
        _LOG.warning("%s", sentence)
    _LOG.log(logging.WARNING if choice.skipped else logging.INFO, "%s", choice.reason)
    return choice.path
