"""Record of a job that outlives its supervisor: `RUN_DIR/supervisor.json`.

The next `asd run` in the same folder reads there which devices are out, and the training of the running attempt where
to resume.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from asd.records import Count, Flag, Text, fill, load_if_there
from asd.rundir.disk import write_whole

VERSION = 1


@dataclass(slots=True)
class Attempt:
    """Attempt of a job."""

    run: Text  # name in events
    devices: list[int]  # the device of each rank
    resume_from: str = ""  # checkpoint file from which it resumes; empty for a start from the beginning
    resume_step: int = 0  # last step in that file; 0 for a start from the beginning, -1 if unknown
    began: float = 0.0  # time of the start, in seconds since the epoch
    ended: float = 0.0  # time of the end; 0 while it runs
    judged: bool = False  # whether it was done, or its consequences are decided
    step: int = 0  # last step that any rank has made; 0 before the first
    interrupted: bool = False  # whether a signal ended it, which tells nothing about its checkpoint


@dataclass(slots=True)
class Record:
    """History of a job in a run directory.

    The last of its attempts may be running. Of each run in `distrusted`, checkpoints from that step on are not trusted.
    """

    job: Text  # name of the job and of its first attempt
    earlier: Count = 0  # number of attempts of earlier jobs with this name
    done: Flag = False  # whether it ended successfully
    attempts: Annotated[list[Attempt], Meta(description="a list of attempts")] = field(default_factory=list)
    distrusted: Annotated[dict[str, int], Meta(description="an object of whole numbers")] = field(default_factory=dict)
    hardware: bool = False  # whether the last attempt ended with a permanent fault
    tried_again: bool = False  # whether the job was retried after a fault that no device caused

    def runs(self) -> set[str]:
        """Returns the names of all attempts of this job."""
        return {attempt.run for attempt in self.attempts}

    def distrust(self, step: int) -> None:
        """Distrusts the checkpoints of all attempts so far from `step` on."""
        for attempt in self.attempts:
            self.distrusted[attempt.run] = min(step, self.distrusted.get(attempt.run, step))

    def is_stuck(self) -> bool:
        """Returns whether the last two attempts that no signal ended made no progress from the same checkpoint."""
        last = [each for each in self.attempts if not each.interrupted][-2:]
        stuck = [each.resume_from for each in last if each.step <= each.resume_step + bool(each.resume_from)]
        return len(stuck) == 2 and stuck[0] == stuck[1] and last[1] is self.attempts[-1]

    def attempt(self, run: str) -> Attempt | None:
        """Returns the attempt of that name; None if there is none."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.run == run), None)

    def save(self, run_dir: Path) -> None:
        """Writes the record as a whole file."""
        write_whole(record_file(run_dir), json.dumps({"version": VERSION, **asdict(self)}, indent=1) + "\n")


def record_file(run_dir: Path) -> Path:
    """Returns the path of the record."""
    return run_dir / "supervisor.json"


def load_record(run_dir: Path) -> Record | None:
    """Returns the record in `run_dir`; None if there is none."""
    path = record_file(run_dir)
    data = load_if_there(path, "record", "a file that `asd run` wrote, or none", version=VERSION)
    return None if data is None else fill(Record, data, f"record {path}")
