"""What a job is to be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from asd.config import Config

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
        max_restarts: So many restarts after a crash or a hang; those that follow from an anomaly are not among them.
        hang_seconds: After so long without a step of any rank the job is started again; 0 for never.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    config: Config
    devices: Sequence[int]
    ranks: int
    max_restarts: int
    hang_seconds: float
