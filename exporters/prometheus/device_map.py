"""Other names of a device, which join its series with those of npu-exporter, and its hardware.

A training knows its device by logic number. `npu-smi` and the driver's version files know the rest; where they are
missing, or the number is not the node's, as in containers, a JSON file maps it:

    {"3": {"id": "11", "vdie_id": "6B5D0A84-20A0-4A21-8C9E-D4A1C0F0B8A1", "model": "Ascend 910B3", "board": "3"}}
"""

import logging
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from asd.config import version_in
from asd.errors import ConfigError
from asd.origin import UNKNOWN, Hardware, Short
from asd.regular_file import read_regular

_log = logging.getLogger("asd.exporter")

_VALID = 'it must be a JSON file such as {"3": {"id": "11", "vdie_id": "6B5D0A84"}}, from logic number to other names'
_OPTION = "--device-map"
_MOST_BYTES = 1 << 20
_SECONDS = 20.0
_ROW = re.compile(r"^\s*(\d{1,4})\s+(\d{1,3})\s+(\d{1,4})\s+(?:(\d{1,4})\s+)?(Ascend ?\S{0,57})", re.M | re.ASCII)
"""NPU ID, Chip ID, Chip Logic ID, in newer versions Chip Phy-ID, and Chip Name."""
_FIELD = re.compile(r"^\s*(\w[\w ]{0,40}?)\s*:[ \t]*(\S.{0,63}?)\s*$", re.M | re.ASCII)
_INSTALLED = Path("/usr/local/Ascend")
_Number = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}\Z")]
_Name = Annotated[str, msgspec.Meta(max_length=128, pattern=r"^[^\x00-\x1f\x7f]*\Z")]


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    id: _Name = ""
    vdie_id: _Name = ""
    model: Short = ""
    firmware: Short = ""
    driver: Short = ""
    board: Short = ""


class DeviceNames(NamedTuple):
    """Names of a device."""

    id: str  # number on the node; empty when it has none
    vdie_id: str = ""  # name by the manufacturer; empty when it is not known
    hardware: Hardware = UNKNOWN  # as far as it is known


DeviceMap = Callable[[str, str], DeviceNames]
"""Function from `host` and `device`, as in `asd.Event`, to the names of a device."""


def name_device(host: str, device: str) -> DeviceNames:  # noqa: ARG001 - the signature of a device map
    """Returns the names without a map: the digits after the colon.

    >>> name_device("node7", "Ascend:3")
    DeviceNames(id='3', vdie_id='', hardware=Hardware(model='', firmware='', driver='', cann='', board=''))
    """
    number = device.rpartition(":")[2] if ":" in device else ""
    return DeviceNames(number if re.fullmatch("[0-9]{1,9}", number, re.ASCII) else "")


def read_device_map(path: Path, host: str = "") -> DeviceMap:
    """Reads a map from logic numbers to physical ids and vdie_ids.

    Args:
        path: The JSON file.
        host: Machine of the map; devices of other machines keep their names. Empty: every machine.
    """
    try:
        entries = msgspec.json.decode(read_regular(path, _MOST_BYTES, links=True), type=dict[_Number, _Entry])
    except OSError as error:
        raise ConfigError(_OPTION, str(path), f"{error.strerror or error}; {_VALID}") from error
    except ValueError as error:
        raise ConfigError(_OPTION, str(path), f"{error}; {_VALID}") from error
    names = {
        number: DeviceNames(
            each.id or number, each.vdie_id, _filled(Hardware(each.model, each.firmware, each.driver, "", each.board))
        )
        for number, each in entries.items()
    }
    ids = [each.id for each in names.values()]
    twice = sorted({each for each in ids if ids.count(each) > 1})
    if twice:
        raise ConfigError(_OPTION, str(path), f"two devices have the id {twice[0]!r}; {_VALID}")

    def named(of_host: str, device: str) -> DeviceNames:
        own = name_device(of_host, device)
        return names.get(own.id, own) if not host or of_host == host else own

    return named


def npu_smi_map() -> DeviceMap:
    """Returns the names by `npu-smi`, if it exists and answers; else by the digits after the colon alone.

    After a call that hangs it is asked no more: the agent does not serve before.
    """
    names = {}
    try:
        rows = _ROW.findall(_said("info", "-m"))
        names = {row[2]: DeviceNames(row[3] or row[2], hardware=_filled(Hardware(row[4]))) for row in rows}
        for npu, chip, logic, _, model in rows:
            board = ("info", "-t", "board", "-i", npu)
            said = _FIELD.findall(_said(*board) + _said(*board, "-c", chip))
            found = {name: value for name, value in said if value not in ("NA", "N/A")}
            serial = found.get("VDie ID") or found.get("Serial Number", "")
            firmware, driver, slot = map(found.get, ("Firmware Version", "Software Version", "Slot ID"), ("", "", ""))
            names[logic] = DeviceNames(names[logic].id, serial, _filled(Hardware(model, firmware, driver, board=slot)))
    except subprocess.TimeoutExpired as error:
        command = " ".join(error.cmd)
        _log.warning("`%s` did not answer in %g s; some serials are unknown: pass --device-map.", command, _SECONDS)
    unknown = _filled(UNKNOWN)

    def named(host: str, device: str) -> DeviceNames:
        own = name_device(host, device)
        return names.get(own.id, own._replace(hardware=unknown)) if device.startswith(("Ascend:", "NPU:")) else own

    return named


def _filled(known: Hardware) -> Hardware:
    """Returns the hardware with versions of the installed packages, where they are not known."""
    firmware = known.firmware or version_in(_INSTALLED / "firmware/version.info")
    return replace(known, firmware=firmware, driver=known.driver or version_in(_INSTALLED / "driver/version.info"))


def _said(*arguments: str) -> str:
    try:
        done = subprocess.run(["npu-smi", *arguments], capture_output=True, timeout=_SECONDS, check=False)
    except OSError:
        return ""
    return done.stdout[: 1 << 20].decode(errors="replace")
