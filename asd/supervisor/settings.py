"""What a job is to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from asd.config import Config
from asd.supervisor.attempt_watch import Patience

__all__ = ["Settings"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a job is to be.

    Attributes:
        command: The training's command line, resolved.
        environ: Its environment.
        config: The settings in that environment.
        devices: All devices; the first `ranks` begin, the others are spares.
        ranks: How many work at a time.
        fewest: How many must at least.
        max_restarts: So many restarts after a crash or a hang; those that follow from an anomaly are not among them.
        checkpoints: Where the training keeps its checkpoints, beside the run directory and what was noted there.
        patience: How long to wait for what.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    config: Config
    devices: Sequence[int]
    ranks: int
    fewest: int
    max_restarts: int = 3
    checkpoints: Sequence[Path] = ()
    patience: Patience = field(default_factory=Patience)
