"""The states of the devices in a file that npu-exporter serves beside its own metrics."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

from prometheus_client.registry import Collector

from asd.errors import ConfigError
from asd.rundir.disk import whole_file

__all__ = ["DeviceState", "NpuExporterFile", "device_states", "write_npu_file"]

MOST_DEVICES = 128
"""Entries that npu-exporter takes from one file."""
UNKNOWN = "unknown"
"""The `id` of a device without a number, and of the only entry while no device is known."""

_OPTION = "--npu-exporter-file"
_NAME = "asd_device_state"
_DESCRIPTION = "Silent data corruption by device: 0 healthy, 1 suspect (as many strikes as take it out), 2 isolated."
_MODE = 0o640  # npu-exporter is the same user or its group


class NpuExporterFile:
    """Writes the file now, for npu-exporter forgets one that is not there when it looks, and whenever it is told to.

    Args:
        metrics: The metrics.
        path: For npu-exporter's text metrics (`-textMetricsFilePath`).
        node: The node whose devices it is told of; this machine when empty.
        on_failure: Called with one sentence per failure.

    Raises:
        ConfigError: The file's place is not valid.
    """

    def __init__(self, metrics: Collector, path: Path, node: str, on_failure: Callable[[str], None]) -> None:
        if path.is_dir():
            raise ConfigError(_OPTION, str(path), "it must be the name of a file, and this is a folder")
        if not path.parent.is_dir():
            raise ConfigError(_OPTION, str(path), f"the folder {path.parent} must exist")
        if path.is_symlink():
            raise ConfigError(_OPTION, str(path), "npu-exporter reads no symbolic link")
        self._metrics, self._path, self._node = metrics, path, node or socket.gethostname()
        self._on_failure = on_failure
        self.write()

    def write(self) -> None:
        """Writes the states as they are now."""
        try:
            write_npu_file(self._path, device_states(self._metrics, self._node))
        except OSError as error:
            self._on_failure(f"{self._path} can't be written: {error.strerror or error}.")


class DeviceState(IntEnum):
    """The value of `asd_device_state`."""

    HEALTHY = 0
    SUSPECT = 1
    ISOLATED = 2


def device_states(metrics: Collector, node: str = "") -> dict[str, DeviceState]:
    """The state of each device, by `id`, as the metrics tell it; the worst where several runs used one device.

    Args:
        metrics: Hold the gauges `asd_rank_info`, `asd_device_suspect` and `asd_device_isolated`.
        node: Only devices of this node, as nodes that share a folder see each other's; all when empty.
    """
    meaning = {
        "asd_rank_info": DeviceState.HEALTHY,
        "asd_device_suspect": DeviceState.SUSPECT,
        "asd_device_isolated": DeviceState.ISOLATED,
    }
    states: dict[str, DeviceState] = {}
    for metric in metrics.collect():
        for sample in metric.samples:
            if sample.name in meaning and node in ("", sample.labels.get("node")):
                state = meaning[sample.name] if sample.value == 1 else DeviceState.HEALTHY
                name = sample.labels.get("id") or UNKNOWN  # two entries with one label would break the scrape
                states[name] = max(states.get(name, state), state)
    return states


def write_npu_file(path: Path, states: dict[str, DeviceState], now: Callable[[], float] = time.time) -> None:
    """Writes `asd_device_state` in the form of npu-exporter's text-metrics file, of the worst 128 devices.

    npu-exporter accepts only a file of its own user: run as that user. Run as root, the file is given to the owner of
    its folder. It drops samples that are old, so the file is written regularly.

    Raises:
        OSError: The file can't be written; the one before is still there.
    """
    worst_first = sorted(states.items(), key=lambda device: (-device[1], len(device[0]), device[0]))
    shown = worst_first[:MOST_DEVICES] or [(UNKNOWN, DeviceState.HEALTHY)]  # an empty list is not valid
    content = {
        "version": "1.0",
        "name": _NAME,
        "desc": _DESCRIPTION,
        "timestamp": int(now() * 1e6),
        "data_list": [{"value": float(state), "label": {"id": name}} for name, state in shown],
    }
    with whole_file(path, flush=False) as file:
        os.fchmod(file.fileno(), _MODE)
        if os.geteuid() == 0:
            folder = path.parent.stat()
            os.fchown(file.fileno(), folder.st_uid, folder.st_gid)
        file.write(json.dumps(content).encode())
