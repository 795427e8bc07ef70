"""Writes the agent's metrics to every place that was asked for, after each poll."""

from __future__ import annotations

import contextlib
import logging
import socket
from collections.abc import Callable
from pathlib import Path

from prometheus_client.registry import Collector

from asd.exporters.outlets.pushgateway import Pushgateway
from asd.exporters.outlets.text_files import TextMetrics, device_states, write_textfile

__all__ = ["Outlets"]

_log = logging.getLogger("asd.exporter")


class Outlets:
    """The places; each is tried every time, and a failure of one is no reason to leave out another.

    Everything is written once at the start, for npu-exporter forgets a file that is not there when it looks.

    Args:
        registry: The metrics.
        textfile: For node_exporter's textfile collector.
        npu_exporter_file: For npu-exporter's text metrics.
        push_url: Address of a Pushgateway.
        node: The node whose devices npu-exporter is told of; this machine when empty.
        on_failure: Called with one sentence per failure; logs it when not given.

    Raises:
        ConfigError: A file's place or the address is not valid.
    """

    def __init__(
        self,
        registry: Collector,
        *,
        textfile: Path | None = None,
        npu_exporter_file: Path | None = None,
        push_url: str | None = None,
        node: str = "",
        on_failure: Callable[[str], None] | None = None,
    ) -> None:
        self._registry = registry
        self._on_failure = on_failure or _log.warning
        self._places: list[Callable[[], None]] = []
        self._gateway: Pushgateway | None = None
        if textfile is not None:
            self._places.append(lambda: write_textfile(textfile, registry))
        if npu_exporter_file is not None:
            text, name = TextMetrics(npu_exporter_file), node or socket.gethostname()
            self._places.append(lambda: text(device_states(registry, name)))
        if push_url is not None:
            gateway = self._gateway = Pushgateway(push_url)
            self._places.append(lambda: gateway.push(registry))
        self.write()

    def write(self) -> None:
        """Writes the metrics as they are now to every place."""
        for write in self._places:
            try:
                write()
            except OSError as error:
                self._on_failure(f"{error}." if error.filename is None else f"{error.filename}: {error.strerror}.")

    def close(self, *, delete: bool = False) -> None:
        """Writes once more, or deletes what was pushed."""
        if delete and self._gateway is not None:
            with contextlib.suppress(OSError):
                self._gateway.delete()
        else:
            self.write()
