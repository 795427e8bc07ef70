"""Where the values of a process come from."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Origin"]


class Origin(NamedTuple):
    """The fields that every event of a process shares.

    Attributes:
        run: Name of the run, the same on all ranks.
        rank: Of the process, from 0.
        host: Name of the machine.
        device: What it computes on, for example `Ascend:3`.
    """

    run: str
    rank: int
    host: str
    device: str
