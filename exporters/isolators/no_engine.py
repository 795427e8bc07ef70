"""The isolator `none`: it touches no engine and only remembers what it was asked."""

from __future__ import annotations

import json
from pathlib import Path

from asd.errors import ConfigError, IsolationError, StateError
from asd.exporters.isolators.marks import label
from asd.isolator import Device, IsolationOwner
from asd.records import load_if_there
from asd.rundir.disk import write_whole

__all__ = ["NoEngine"]


class NoEngine:
    """Remembers which devices were taken out.

    Args:
        record: A JSON file to keep that in; without one it is forgotten with the process.

    Raises:
        ConfigError: `record` is no path of a file.
    """

    name = "none"

    def __init__(self, *, record: str | Path | None = None) -> None:
        self._path = Path(record) if record else None
        if self._path is not None and self._path.is_dir():
            raise ConfigError("the option record", str(record), "it must be the path of a file")
        self._out: dict[str, dict[str, str]] = {}

    def held(self, device: Device) -> IsolationOwner:
        """Who holds `device` out, as `Isolator.held`."""
        return IsolationOwner.OURS if _key(device) in self._read(device) else IsolationOwner.FREE

    def isolate(self, device: Device, reason: str, event_id: str) -> None:
        """Remembers that `device` is out, as `Isolator.isolate`."""
        out = self._read(device)
        if _key(device) not in out:
            self._write(device, {**out, _key(device): {"reason": reason, "event": event_id}})

    def release(self, device: Device) -> None:
        """Forgets that `device` is out, as `Isolator.release`."""
        out = self._read(device)
        if out.pop(_key(device), None) is not None:
            self._write(device, out)

    def _read(self, device: Device) -> dict[str, dict[str, str]]:
        if self._path is None:
            return dict(self._out)
        try:
            return load_if_there(self._path, "record", "what this isolator wrote") or {}
        except StateError as error:
            raise IsolationError(device, self.name, str(error).rstrip("."), retry=False) from error

    def _write(self, device: Device, out: dict[str, dict[str, str]]) -> None:
        if self._path is not None:
            try:
                write_whole(self._path, json.dumps(out, indent=1))
            except OSError as error:
                reason = f"{self._path} can't be written: {error.strerror or error}"
                raise IsolationError(device, self.name, reason) from error
        self._out = out


def _key(device: Device) -> str:
    return f"{device.host} {label(device)}"
