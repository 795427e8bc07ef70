"""Which process and which device something comes from."""

from __future__ import annotations

from dataclasses import dataclass

from asd.records import Rank, Text

__all__ = ["FromOrigin", "Origin"]


@dataclass(frozen=True, slots=True)
class Origin:
    """What every event, status and manifest of a process shares. In JSON its fields stand among theirs.

    Attributes:
        run: Name of the run, the same on all ranks.
        rank: Of the process, from 0; -1 when it is not known.
        host: Name of the machine.
        device: What it computes on, for example `Ascend:3`.
    """

    run: Text
    rank: Rank
    host: Text
    device: Text


class FromOrigin:
    """Something with an `origin`, whose fields can be read without naming it."""

    __slots__ = ()
    origin: Origin

    @property
    def run(self) -> str:
        """Name of the run, unique among runs that share a log."""
        return self.origin.run

    @property
    def rank(self) -> int:
        """Rank of the process in the job, from 0; -1 when it is not known."""
        return self.origin.rank

    @property
    def host(self) -> str:
        """Name of the machine."""
        return self.origin.host

    @property
    def device(self) -> str:
        """The device the rank computes on, for example `Ascend:3` or `CPU:0`; `unknown` when it is not known."""
        return self.origin.device
