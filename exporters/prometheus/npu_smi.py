"""Devices of this machine by `npu-smi`: logic number, physical number and serial."""

from __future__ import annotations

import re
import shutil
import subprocess

from asd.exporters.prometheus.device_map import DeviceMap, DeviceNames, name_device

_SECONDS = 20.0
_ROW = re.compile(r"^\s*(\d{1,4})\s+(\d{1,3})\s+(\d{1,4})\s+(?:(\d{1,4})\s+)?Ascend", re.MULTILINE | re.ASCII)
"""NPU ID, Chip ID, Chip Logic ID and, in newer versions, Chip Phy-ID."""
_SERIAL = re.compile(r"^\s*(VDie ID|Serial Number)\s*:[ \t]*(\S.{0,200}?)\s*$", re.MULTILINE | re.ASCII)


def npu_smi_map() -> DeviceMap:
    """Returns the names by `npu-smi`, if it exists and answers; else by the digits after the colon alone."""
    program = shutil.which("npu-smi")
    rows = _ROW.findall(_said(program, "info", "-m")) if program else []
    names = {}
    for npu, chip, logic, physical in rows:
        board = ("info", "-t", "board", "-i", npu)
        found = dict(_SERIAL.findall(_said(program, *board) + _said(program, *board, "-c", chip)))
        serial = found.get("VDie ID") or found.get("Serial Number", "")
        names[logic] = DeviceNames(physical or logic, "" if serial in ("NA", "N/A") else serial)

    def named(host: str, device: str) -> DeviceNames:
        own = name_device(host, device)
        return names.get(own.id, own) if device.startswith(("Ascend:", "NPU:")) else own

    return named


def _said(program: str | None, *arguments: str) -> str:
    try:
        done = subprocess.run([program or "", *arguments], capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout[: 1 << 20].decode(errors="replace")
