"""Makes events of the alarms in lines of a log."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from datetime import tzinfo
from typing import Any

from asd.event import Event
from asd.ingest.log_line import LogLine, device_of_path, messages, rank_of_path
from asd.ingest.patterns import STRIKE_OUT, LogFinding, read
from asd.ingest.timestamps import LAST, read_time
from asd.origin import Origin
from asd.rundir.follow import Line

__all__ = ["Alarms"]

_LISTS = 1000  # so many files and ranks whose last strike-out is remembered
_TOGETHER = 60.0  # seconds within which every rank, or rank 0 for another, has printed the same fact


class Alarms:
    """Reads lines of all sources; remembers only whose strike-out a list of spikes belongs to.

    Args:
        run: Name of the run in the events.
        host: Name of this machine, for lines that name none.
        zone: Zone of the times in the logs; None for this machine's.
        chips_per_card: Chips on one card, to tell the device from the numbers that the device plugin prints.
        clock: For lines without a time.
    """

    def __init__(
        self,
        run: str,
        host: str,
        zone: tzinfo | None = None,
        *,
        chips_per_card: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._run, self._host, self._zone, self._clock = run, host, zone, clock
        self._chips_per_card = chips_per_card
        self._lists: dict[str, int] = {}

    def read(self, line: Line) -> list[Event]:
        """The alarms in `line`; nearly always none."""
        found = [(message, finding) for message in messages(line.text) for finding in self._findings(line, message)]
        return [self._event(line, message, finding, number) for number, (message, finding) in enumerate(found)]

    def state(self) -> dict[str, Any]:
        """What `restore` needs to go on in the middle of a list, as something JSON can hold."""
        return {"lists": dict(self._lists)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken; what is no state is passed over."""
        lists = state.get("lists")
        if isinstance(lists, dict):
            self._lists = {key: rank for key, rank in lists.items() if type(rank) is int and rank >= -1}

    def _findings(self, line: Line, message: LogLine) -> list[LogFinding]:
        file = f"{line.key.rpartition(':')[0]} {message.printer}"
        found = read(message, chips_per_card=self._chips_per_card, list_rank=self._lists.get(file, -1))
        for finding in found:
            if finding.rule == "torch_npu" and finding.reason == STRIKE_OUT:
                self._lists.pop(file, None)
                self._lists[file] = -1 if finding.rank is None else finding.rank
                while len(self._lists) > _LISTS:
                    del self._lists[next(iter(self._lists))]
        return found

    def _event(self, line: Line, message: LogLine, finding: LogFinding, number: int) -> Event:
        ranks = (finding.rank, message.printer, rank_of_path(line.path), -1)
        when = finding.time if finding.time is not None and 0 < finding.time < LAST else None
        for text in (finding.when, message.text):
            when = read_time(text, self._zone, self._clock) if when is None else when
        # A file may have inode and first line of one that was deleted, so the place alone does not tell lines apart.
        place = f"{line.key}:{hashlib.sha256(line.text.encode(errors='replace')).hexdigest()[:8]}"
        key = finding.fact or (f"{place}+{number}" if number else place)
        if finding.by_many and when is not None:
            key = f"{finding.reason} {when // _TOGETHER:.0f}"
        device = finding.device or device_of_path(line.path) or "unknown"
        rank = next(rank for rank in ranks if rank is not None)
        return Event(
            origin=Origin(self._run, rank, finding.host or self._host, device),
            step=finding.step,
            checkpoint=finding.checkpoint,
            value=finding.value,
            limits=finding.limits,
            level=finding.level,
            kind=finding.kind,
            rule=finding.rule,
            feature=finding.feature,
            reason=finding.reason,
            refused=False,
            time=self._clock() if when is None else when,
            code=finding.code,
            key=key,
        )
