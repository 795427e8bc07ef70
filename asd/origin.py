"""Process and device from which an event, a status or a manifest comes."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from asd.records import Name, Rank

_CHIP_FILE = re.compile(r"davinci([0-9]{1,4})", re.ASCII)
Short = Annotated[str, Meta(max_length=64, description="a text of at most 64 characters")]


@dataclass(frozen=True, slots=True)
class Hardware:
    """Properties by which the devices of a fleet are sorted; empty where they are not known."""

    model: Short = ""  # model of the chip, for example `Ascend 910B3`
    firmware: Short = ""  # version of its firmware
    driver: Short = ""  # version of its driver
    cann: Short = ""  # version of CANN of the training on it
    board: Short = ""  # position of its board in the node


UNKNOWN = Hardware()


@dataclass(frozen=True, slots=True)
class Origin:
    """Common part of all events, statuses and manifests of a process. In JSON its fields are among theirs.

    Attributes:
        run: Name of the run, the same on all ranks.
        rank: Rank of the process, from 0; -1 when it is not known.
        host: Name of the machine.
        device: Device of the process, for example `Ascend:3`.
    """

    run: Name
    rank: Rank
    host: Name
    device: Name


class FromOrigin:
    """Base class with an `origin`, whose fields are attributes of the object too."""

    __slots__ = ()
    origin: Origin

    @property
    def run(self) -> str:
        """Returns the name of the run, unique among runs that share a log."""
        return self.origin.run

    @property
    def rank(self) -> int:
        """Returns the rank of the process in the job, from 0; -1 when it is not known."""
        return self.origin.rank

    @property
    def host(self) -> str:
        """Returns the name of the machine."""
        return self.origin.host

    @property
    def device(self) -> str:
        """Returns the device of the rank, for example `Ascend:3` or `CPU:0`; `unknown` when it is not known."""
        return self.origin.device


def machine_name() -> str:
    """Returns the host name and the namespace of process numbers: in containers one name may have several of these."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    return socket.gethostname()


def mounted_chips(folder: Path = Path("/dev")) -> list[int]:
    """Returns the chips of the node that this process can reach, ascending; empty on a machine without any.

    Drivers count devices from 0 in each container, but the container's device files keep the numbers of the node.
    """
    found = [_CHIP_FILE.fullmatch(path.name) for path in folder.glob("davinci*")]
    return sorted(int(match[1]) for match in found if match)


def device_name(target: str, number: int, visible: Sequence[int], mounted: Sequence[int]) -> str:
    """Returns the name of a device in events, with its number on the node.

    Args:
        target: MindSpore's device target.
        number: MindSpore's number of the device.
        visible: Devices that the process sees, ascending; empty for all.
        mounted: Chips of the node in its container, ascending.

    >>> device_name("Ascend", 1, visible=[4, 5, 6, 7], mounted=[])
    'Ascend:5'
    """
    if target != "Ascend":
        return f"{target}:{number}"
    for numbers in (visible, mounted):
        number = numbers[number] if number < len(numbers) else number
    return f"{target}:{number}"
