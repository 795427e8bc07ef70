"""The metrics to others than Prometheus itself: files that exporters on the node serve, and a Pushgateway."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Callable
from enum import IntEnum
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from prometheus_client import delete_from_gateway, push_to_gateway, write_to_textfile
from prometheus_client.registry import Collector

from asd.errors import ConfigError
from asd.rundir.disk import whole_file

__all__ = ["DeviceState", "Outlets", "device_states", "write_npu_file"]

MOST_DEVICES = 128
"""Entries that npu-exporter takes from one file."""
UNKNOWN = "unknown"
"""The `id` of a device without a number, and of the only entry while no device is known."""

_JOB = "asd"
_PUSH_SECONDS = 5.0
_NAME = "asd_device_state"
_DESCRIPTION = "Silent data corruption by device: 0 healthy, 1 suspect (as many strikes as take it out), 2 isolated."
_TEXTFILE_MODE, _NPU_MODE = 0o644, 0o640  # node_exporter is another user; npu-exporter the same one or its group
_log = logging.getLogger("asd.exporter")


class Outlets:
    """Writes the metrics to each place that was asked for; a failure of one is no reason to leave out another.

    Everything is written once at the start, for npu-exporter forgets a file that is not there when it looks.

    Args:
        metrics: The metrics.
        textfile: For node_exporter's textfile collector (`--collector.textfile.directory`).
        npu_exporter_file: For npu-exporter's text metrics (`-textMetricsFilePath`).
        push_url: Address of a Pushgateway, for example `http://127.0.0.1:9091`.
        node: The node whose devices npu-exporter is told of, and the group of the Pushgateway; this machine when empty.
        on_failure: Called with one sentence per failure; logs it when not given.

    Raises:
        ConfigError: A file's place or the address is not valid.
    """

    def __init__(
        self,
        metrics: Collector,
        *,
        textfile: Path | None = None,
        npu_exporter_file: Path | None = None,
        push_url: str | None = None,
        node: str = "",
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        _check(textfile, npu_exporter_file, push_url)
        self._push_url = push_url
        self._on_failure = on_failure or _log.warning
        self._group = {"instance": node or socket.gethostname()}
        self._writers: list[tuple[str, Callable[[], None]]] = []
        if textfile is not None:
            self._writers.append((f"{textfile} can't be written", lambda: _write_textfile(textfile, metrics)))
        if npu_exporter_file is not None:
            file, host = npu_exporter_file, self._group["instance"]
            self._writers.append(
                (f"{file} can't be written", lambda: write_npu_file(file, device_states(metrics, host)))
            )
        if push_url is not None:
            self._writers.append(
                (
                    f"the metrics can't be pushed to {push_url}",
                    lambda: push_to_gateway(push_url, _JOB, metrics, self._group, _PUSH_SECONDS),
                )
            )
        self.write()

    def write(self) -> None:
        """Writes the metrics as they are now to every place."""
        for failure, write in self._writers:
            self._try(failure, write)

    def close(self, *, delete: bool = False) -> None:
        """Writes once more, or deletes what was pushed."""
        url = self._push_url
        if delete and url is not None:
            self._try(
                f"the metrics at {url} can't be deleted",
                lambda: delete_from_gateway(url, _JOB, self._group, _PUSH_SECONDS),
            )
        else:
            self.write()

    def _try(self, failure: str, act: Callable[[], None]) -> None:
        try:
            act()
        except (OSError, HTTPException) as error:
            self._on_failure(f"{failure}: {getattr(error, 'strerror', None) or error}.")


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
        os.fchmod(file.fileno(), _NPU_MODE)
        if os.geteuid() == 0:
            folder = path.parent.stat()
            os.fchown(file.fileno(), folder.st_uid, folder.st_gid)
        file.write(json.dumps(content).encode())


def _write_textfile(path: Path, metrics: Collector) -> None:
    """Writes everything for node_exporter, which is another user and knows no staleness."""
    write_to_textfile(str(path), metrics)
    path.chmod(_TEXTFILE_MODE)


def _check(textfile: Path | None, npu_exporter_file: Path | None, push_url: str | None) -> None:
    if textfile is not None and textfile.suffix != ".prom":
        raise ConfigError("--textfile", str(textfile), "node_exporter reads only files whose names end in .prom")
    for option, path in (("--textfile", textfile), ("--npu-exporter-file", npu_exporter_file)):
        if path is not None and path.is_dir():
            raise ConfigError(option, str(path), "it must be the name of a file, and this is a folder")
        if path is not None and not path.parent.is_dir():
            raise ConfigError(option, str(path), f"the folder {path.parent} must exist")
    if npu_exporter_file is not None and npu_exporter_file.is_symlink():
        raise ConfigError("--npu-exporter-file", str(npu_exporter_file), "npu-exporter reads no symbolic link")
    if push_url is not None and not _is_address(push_url):
        raise ConfigError("--push", push_url, "it must be an http or https address such as http://127.0.0.1:9091")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
