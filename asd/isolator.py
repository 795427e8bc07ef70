"""Isolator of devices: the one interface between the fault handler and the schedulers."""

from enum import Enum
from typing import NamedTuple, Protocol


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
    """Owner of a device's isolation."""

    FREE = "free"
    """No owner: it may be given work."""
    OURS = "ours"
    """Isolated by us: it has our mark."""
    OTHERS = "others"
    """Isolated by others: their isolation is neither taken over nor undone."""


class Isolator(Protocol):
    """Scheduler that can keep work away from a device.

    Every method may be called again after a crash, with the same outcome, and ends within a bounded time.

    Attributes:
        name: Its name in sentences and in events, for example `slurm`.

    An isolator of whole nodes has `whole_nodes`, which is true. One that knows the nodes of the cluster has a method
    `nodes` that returns their names.
    """

    name: str

    def held(self, device: Device) -> IsolationOwner:
        """Returns who isolates `device` now.

        Raises:
            IsolationError: The scheduler does not answer that.
        """

    def isolate(self, device: Device, reason: str, event_id: str) -> None:
        """Isolates `device` and marks it as ours; does nothing if it is ours already.

        Args:
            device: Device to isolate.
            reason: One sentence for people.
            event_id: Id of the event that is the cause.

        Raises:
            IsolationError: It may or may not be out; `held` tells.
        """

    def release(self, device: Device) -> None:
        """Releases `device` if it is ours; does nothing if it is free.

        Raises:
            IsolationError: It may or may not be out; `held` tells.
        """
