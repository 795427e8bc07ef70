"""Device-days: how long each device was watched in trainings, by its hardware then."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec

from asd.exporters.prometheus.device_map import DeviceMap, DeviceNames
from asd.handler.db.fleet import Used
from asd.handler.inputs.cursor import MOST_FLEET_BYTES
from asd.judge.status import Status

_SHORTEST_SECONDS, _LONGEST_SECONDS = 10.0, 60.0  # between two looks; more is not counted, as of a suspended agent
_FRESH_SECONDS = 600.0  # age of the status of a training that goes on: a step may take minutes
_MOST = 256
_DAY = 86400.0


class DeviceUse:
    """Counter of device-days of one node.

    Args:
        devices: Returns names and hardware of a device.
    """

    def __init__(self, devices: DeviceMap) -> None:
        self._devices = devices
        self._used: dict[Used, float] = {}  # seconds, by a `Used` of 0 days; the last used stands last
        self._cann: dict[tuple[str, str], str] = {}
        self._looked = float("inf")

    def names(self, host: str, device: str) -> DeviceNames:
        """Returns names and hardware of a device, with the CANN of the last training on it."""
        names = self._devices(host, device)
        cann = self._cann.get((host, device), "")
        return names._replace(hardware=replace(names.hardware, cann=cann)) if cann else names

    def look(self, statuses: Iterable[Status], now: float, moment: float) -> None:
        """Adds the time since the last look for each device on which one of these trainings goes on.

        `now` is in seconds since the epoch, `moment` in those of a clock that never goes back.
        """
        passed = moment - self._looked
        if 0.0 <= passed < _SHORTEST_SECONDS:
            return
        passed, self._looked = min(max(passed, 0.0), _LONGEST_SECONDS), moment
        fresh = [each for each in statuses if each.active and abs(now - each.written) < _FRESH_SECONDS]
        self._cann = {(each.host, each.device): each.cann[:64] for each in fresh}
        for host, device in dict.fromkeys(self._cann):
            names = self.names(host, device)
            parts = names.hardware
            key = Used(
                host, device, names.vdie_id, parts.model, parts.firmware, parts.driver, parts.cann, parts.board, 0.0
            )
            self._used[key] = self._used.pop(key, 0.0) + passed
        while len(self._used) > _MOST:
            del self._used[next(iter(self._used))]

    def state(self) -> list[Any]:
        """Returns the device-days, in steps of a quarter of an hour, so that they seldom change."""
        days = ((each, round(seconds / _DAY, 2)) for each, seconds in self._used.items())
        return [msgspec.to_builtins(msgspec.structs.replace(each, days=number)) for each, number in days]

    def restore(self, state: Any) -> None:
        """Goes on from what `state` returned; with nothing from what it did not return."""
        with contextlib.suppress(ValueError):
            found = msgspec.convert(state, list[Used])
            self._used = {msgspec.structs.replace(each, days=0.0): each.days * _DAY for each in found}

    def to_json(self) -> str:
        """Returns the JSON of the state for a header, without the oldest of too much."""
        rows = self.state()
        while len(text := json.dumps(rows, separators=(",", ":"))) > MOST_FLEET_BYTES:
            del rows[: len(rows) // 4 + 1]
        return text
