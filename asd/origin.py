"""Which process and which device something comes from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from asd.records import Name, Rank

_CHIP_FILE = re.compile(r"davinci([0-9]{1,4})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Origin:
    """What every event, status and manifest of a process shares. In JSON its fields stand among theirs.

    Attributes:
        run: Name of the run, the same on all ranks.
        rank: Of the process, from 0; -1 when it is not known.
        host: Name of the machine.
        device: What it computes on, for example `Ascend:3`.
    """

    run: Name
    rank: Rank
    host: Name
    device: Name


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


def mounted_chips(folder: Path = Path("/dev")) -> list[int]:
    """The chips of the node that this process can reach, ascending; empty on a machine without any.

    Drivers count devices from 0 in each container, but its device files keep the numbers of the node.
    """
    found = [_CHIP_FILE.fullmatch(path.name) for path in folder.glob("davinci*")]
    return sorted(int(match[1]) for match in found if match)


def device_name(target: str, number: int, visible: Sequence[int], mounted: Sequence[int]) -> str:
    """What a device is called in events: by the number that it has on its node.

    Args:
        target: What MindSpore computes on.
        number: What it counts its device as.
        visible: The devices that its process sees, ascending; empty for all.
        mounted: The chips of the node in its container, ascending.

    >>> device_name("Ascend", 1, visible=[4, 5, 6, 7], mounted=[])
    'Ascend:5'
    """
    if target != "Ascend":
        return f"{target}:{number}"
    for numbers in (visible, mounted):
        number = numbers[number] if number < len(numbers) else number
    return f"{target}:{number}"
