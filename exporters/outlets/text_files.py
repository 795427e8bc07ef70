"""Metrics as files, for exporters that run on the node already.

npu-exporter reads one gauge per file (`-textMetricsFilePath`), node_exporter the whole exposition from a `.prom` file
(`--collector.textfile.directory`). Both get whole files: each is written beside its place and renamed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.registry import Collector

from asd.errors import ConfigError
from asd.rundir.disk import whole_file

__all__ = ["DeviceState", "TextMetrics", "device_states", "write_textfile"]

MOST_DEVICES = 128
"""As many entries npu-exporter takes from one file."""
UNKNOWN = "unknown"
"""The `id` of a device without a number, and of the only entry while no device is known."""

_NAME = "asd_device_state"
_DESCRIPTION = "Silent data corruption by device: 0 healthy, 1 suspect (as many strikes as take it out), 2 isolated."
_TEXTFILE_MODE, _NPU_MODE = 0o644, 0o640  # node_exporter is another user; npu-exporter the same one or its group


class DeviceState(IntEnum):
    """The value of `asd_device_state`."""

    HEALTHY = 0
    SUSPECT = 1
    ISOLATED = 2


class TextMetrics:
    """Writes `asd_device_state` in the form of npu-exporter's text-metrics file.

    npu-exporter waits one minute for the file when it starts and then forgets it until its next start, so write it once
    before; it drops samples that are old, so write it regularly. It accepts only a file of its own user: run as that
    user. Run as root, the file is given to the owner of its folder.

    Args:
        path: The file, no symbolic link and no folder.
        clock: Seconds since the epoch.

    Raises:
        ConfigError: `path` is a symbolic link, a folder, or in a folder that does not exist.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self.clock = clock
        _check_place("--npu-exporter-file", self.path)
        if self.path.is_symlink():
            raise ConfigError("--npu-exporter-file", str(path), "npu-exporter reads no symbolic link")

    def __call__(self, devices: Mapping[str, DeviceState | int]) -> None:
        """Writes the state of each device.

        Args:
            devices: Per `id` its state. Of more than 128 the worst are kept; an empty `id` becomes `unknown`.

        Raises:
            OSError: The file can't be written; the one before is still there.
        """
        states: dict[str, int] = {}
        for name, state in devices.items():  # two entries with one label would break the scrape
            states[name or UNKNOWN] = max(state, states.get(name or UNKNOWN, state))
        worst_first = sorted(states.items(), key=lambda device: (-device[1], len(device[0]), device[0]))
        entries = [
            {"value": float(state), "label": {"id": name}}
            for name, state in worst_first[:MOST_DEVICES] or [(UNKNOWN, DeviceState.HEALTHY)]  # no empty list is valid
        ]
        content = {
            "version": "1.0",
            "name": _NAME,
            "desc": _DESCRIPTION,
            "timestamp": int(self.clock() * 1e6),
            "data_list": entries,
        }
        _replace(self.path, json.dumps(content).encode(), _NPU_MODE, to_owner_of_folder=True)


def device_states(registry: Collector, node: str = "") -> dict[str, DeviceState]:
    """The state of each device, by `id`, as the metrics tell it; the worst where several runs used one device.

    Args:
        registry: Holds the gauges `asd_rank_info`, `asd_device_suspect` and `asd_device_isolated`.
        node: Only devices of this node, as nodes that share a folder see each other's; all when empty.
    """
    meaning = {
        "asd_rank_info": DeviceState.HEALTHY,
        "asd_device_suspect": DeviceState.SUSPECT,
        "asd_device_isolated": DeviceState.ISOLATED,
    }
    states: dict[str, DeviceState] = {}
    for metric in registry.collect():
        for sample in metric.samples:
            if sample.name in meaning and node in ("", sample.labels.get("node")):
                state = meaning[sample.name] if sample.value == 1 else DeviceState.HEALTHY
                name = sample.labels.get("id", "")
                states[name] = max(states.get(name, state), state)
    return states


def write_textfile(path: str | os.PathLike[str], registry: Collector) -> None:
    """Writes everything in `registry` for node_exporter's textfile collector, readable for all.

    node_exporter knows no staleness: alert on `node_textfile_mtime_seconds` as well.

    Raises:
        ConfigError: `path` does not end in `.prom`, is a folder, or is in a folder that does not exist.
        OSError: The file can't be written; the one before is still there.
    """
    place = Path(path)
    if place.suffix != ".prom":
        raise ConfigError("--textfile", str(path), "node_exporter reads only files whose names end in .prom")
    _check_place("--textfile", place)
    _replace(place, generate_latest(registry), _TEXTFILE_MODE)


def _check_place(option: str, path: Path) -> None:
    if path.is_dir():
        raise ConfigError(option, str(path), "it must be the name of a file, and this is a folder")
    if not path.parent.is_dir():
        raise ConfigError(option, str(path), f"the folder {path.parent} must exist")


def _replace(path: Path, content: bytes, mode: int, *, to_owner_of_folder: bool = False) -> None:
    """Puts `content` at `path` by a rename; not synced, as the next one comes within seconds."""
    with whole_file(path, flush=False) as file:
        os.fchmod(file.fileno(), mode)
        if to_owner_of_folder and os.geteuid() == 0:
            folder = path.parent.stat()
            os.fchown(file.fileno(), folder.st_uid, folder.st_gid)
        file.write(content)
