"""Other names of a device: physical id and vdie_id, which join its series with those of npu-exporter.

A training knows its device by logic number. Where that is not the physical one, as in containers, a JSON file maps it:

    {"3": {"id": "11", "vdie_id": "6B5D0A84-20A0-4A21-8C9E-D4A1C0F0B8A1"}}
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from asd.errors import ConfigError

_VALID = 'it must be a JSON file such as {"3": {"id": "11", "vdie_id": "6B5D0A84"}}, from logic number to other names'
_OPTION = "--device-map"
_MOST_BYTES = 1 << 20
_Number = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}\Z")]
_Name = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*\Z")]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    id: _Name = ""
    vdie_id: _Name = ""


class DeviceNames(NamedTuple):
    """Names of a device.

    Attributes:
        id: Number on the node; empty when it has none.
        vdie_id: Name by the manufacturer; empty when it is not known.
    """

    id: str
    vdie_id: str = ""


DeviceMap = Callable[[str, str], DeviceNames]
"""Function from `host` and `device`, as in `asd.Event`, to the names of a device."""


def name_device(host: str, device: str) -> DeviceNames:  # noqa: ARG001 - the signature of a device map
    """Returns the names without a map: the digits after the colon.

    >>> name_device("node7", "Ascend:3")
    DeviceNames(id='3', vdie_id='')
    """
    number = device.rpartition(":")[2] if ":" in device else ""
    return DeviceNames(number if re.fullmatch("[0-9]{1,9}", number, re.ASCII) else "")


def read_device_map(path: Path, host: str = "") -> DeviceMap:
    """Reads a map from logic numbers to physical ids and vdie_ids.

    Args:
        path: The JSON file.
        host: Machine of the map; devices of other machines keep their names. Empty: every machine.

    Raises:
        ConfigError: The file cannot be read or has other content; the message names the reason.
    """
    try:
        with path.open("rb") as file:
            entries = msgspec.json.decode(file.read(_MOST_BYTES), type=dict[_Number, _Entry])
    except OSError as error:
        raise ConfigError(_OPTION, str(path), f"{error.strerror or error}; {_VALID}") from error
    except ValueError as error:
        raise ConfigError(_OPTION, str(path), f"{error}; {_VALID}") from error
    names = {number: DeviceNames(entry.id or number, entry.vdie_id) for number, entry in entries.items()}
    ids = [each.id for each in names.values()]
    twice = sorted({each for each in ids if ids.count(each) > 1})
    if twice:
        raise ConfigError(_OPTION, str(path), f"two devices have the id {twice[0]!r}; {_VALID}")

    def named(of_host: str, device: str) -> DeviceNames:
        own = name_device(of_host, device)
        return names.get(own.id, own) if not host or of_host == host else own

    return named
