"""Who takes a device out of the job: the one interface between the fault handler and the engines."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

__all__ = ["Device", "IsolationOwner", "Isolator"]


class Device(NamedTuple):
    """One device.

    Attributes:
        host: Name of the machine.
        device: Its name there, for example `Ascend:3` or `CPU:0`.
        rank: Rank of the last event about it; -1 when it is not known.
    """

    host: str
    device: str
    rank: int

    def __str__(self) -> str:
        return f"{self.device} on {self.host}"


class IsolationOwner(str, Enum):
    """Who holds a device out of work."""

    FREE = "free"
    """Nobody: it may be given work."""
    OURS = "ours"
    """We do: it bears our mark."""
    OTHERS = "others"
    """Somebody else does, and what is theirs is neither taken over nor undone."""


class Isolator(Protocol):
    """An engine that can keep work away from a device.

    Every method may be called again after a crash, with the same outcome, and ends within a bounded time.

    Attributes:
        name: What it is called in sentences and in events, for example `slurm`.

    One that isolates the whole node of a device has `whole_nodes`, which is true; one that knows which nodes there are
    has a method `nodes` that returns their names.
    """

    name: str

    def held(self, device: Device) -> IsolationOwner:
        """Who holds `device` out now.

        Raises:
            IsolationError: The engine does not say.
        """

    def isolate(self, device: Device, reason: str, event_id: str) -> None:
        """Takes `device` out and marks it as ours; nothing happens to one that is ours already.

        Args:
            device: What to take out.
            reason: One sentence for people.
            event_id: Id of the event that is the cause.

        Raises:
            IsolationError: It may or may not be out; `held` tells.
        """

    def release(self, device: Device) -> None:
        """Gives `device` back if it is ours; nothing happens to one that is free.

        Raises:
            IsolationError: It may or may not be out; `held` tells.
        """
