"""What outlives a supervisor: `RUN_DIR/supervisor.json`.

It tells the next `asd run` in the same folder which devices are out, and tells the training of the attempt that runs
where to resume from.
"""

from __future__ import annotations

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
    """One start of the job.

    Attributes:
        run: Its name in events.
        devices: The device of each rank.
        resume_from: Checkpoint file it goes on from; empty when it begins.
        resume_step: The last step in it; 0 when it begins, -1 when it is not known.
        began: When, in seconds since the epoch.
        ended: When; 0 while it runs.
        judged: Whether it was done, or what follows from its end was decided.
        step: The last step that any rank has made; 0 before the first.
    """

    run: Text
    devices: list[int]
    resume_from: str = ""
    resume_step: int = 0
    began: float = 0.0
    ended: float = 0.0
    judged: bool = False
    step: int = 0


@dataclass(slots=True)
class Record:
    """What is known of a job in a run directory.

    Attributes:
        job: Its name; that of its first attempt.
        earlier: How many attempts earlier jobs of this name had.
        done: Whether it ended well.
        attempts: Its attempts; the last one may be running.
        distrusted: Per run the first step that is not trusted in its checkpoints.
        tried_again: Whether the job was tried again after a fault that is no device's.
    """

    job: Text
    earlier: Count = 0
    done: Flag = False
    attempts: Annotated[list[Attempt], Meta(description="a list of attempts")] = field(default_factory=list)
    distrusted: Annotated[dict[str, int], Meta(description="an object of whole numbers")] = field(default_factory=dict)
    tried_again: bool = False

    @property
    def number(self) -> int:
        """How many attempts there were, those of earlier jobs of this name included."""
        return self.earlier + len(self.attempts)

    def next_run(self) -> str:
        """The name of the next attempt."""
        return f"{self.job}+{self.number + 1}" if self.number else self.job

    def runs(self) -> set[str]:
        """The names of all attempts of this job."""
        return {attempt.run for attempt in self.attempts}

    def distrust(self, step: int) -> None:
        """Trusts no checkpoint of any attempt so far from `step` on."""
        for attempt in self.attempts:
            self.distrusted[attempt.run] = min(step, self.distrusted.get(attempt.run, step))

    def is_stuck(self) -> bool:
        """Whether the last two attempts went on from the same place, and came no further."""
        last = self.attempts[-2:]
        stuck = [each.step <= each.resume_step + bool(each.resume_from) for each in last]
        return len(last) == 2 and all(stuck) and last[0].resume_from == last[1].resume_from

    def attempt(self, run: str) -> Attempt | None:
        """The attempt of that name."""
        return next((attempt for attempt in reversed(self.attempts) if attempt.run == run), None)

    def save(self, run_dir: Path) -> None:
        """Writes it whole.

        Raises:
            OSError: It can't be written.
        """
        write_whole(record_file(run_dir), json.dumps({"version": VERSION, **asdict(self)}, indent=1) + "\n")


def record_file(run_dir: Path) -> Path:
    """Where the record is."""
    return run_dir / "supervisor.json"


def load_record(run_dir: Path) -> Record | None:
    """The record in `run_dir`; None when there is none.

    Raises:
        StateError: It is damaged.
    """
    path = record_file(run_dir)
    data = load_if_there(path, "record", "what `asd run` wrote, or no such file", version=VERSION)
    return None if data is None else fill(Record, data, f"record {path}")
