"""Drill: trains a command several times in a folder of its own, and finds out what detection does there.

`job` is the parent: it has `trainings` run and `conclusions` drawn. `writes` redirects in each training what it
writes. `asd.operators.drill.child` counts steps there, records losses and times, and injects the fault.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "ASD_DRILL"
"""Environment variable of a training that is drilled: the folder of this one training, with its plan."""
REFUSED = "refused.txt"
"""File in that folder, with the paths that could not be redirected."""


@dataclass(frozen=True)
class TrainingPlan:
    """One training of a drill.

    Attributes:
        folder: Folder of this training alone.
        steps: Steps to make; then the training is ended.
        redirects: Whether files that it writes are redirected into the folder; else they are written in place.
        fault: Fault to inject, as text; empty for none.
    """

    folder: str
    steps: int
    redirects: bool = True
    fault: str = ""

    def save(self) -> None:
        """Writes the plan into its folder, which is made."""
        Path(self.folder).mkdir(parents=True)
        Path(self.folder, "plan.json").write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, folder: str) -> "TrainingPlan":
        """Returns the plan of a folder."""
        return cls(**json.loads(Path(folder, "plan.json").read_text(encoding="utf-8")))


def drilled() -> str:
    """Returns the folder of the training that this process is in, if it is one of a drill; else an empty text."""
    return os.environ.get(VARIABLE, "")  # noqa: TID251 - no setting: what a drill tells its trainings
