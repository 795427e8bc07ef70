"""Makes events of the alarms in lines of a log."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import tzinfo
from typing import Any, NamedTuple

from asd.event import Event
from asd.ingest.log_line import LogLine, device_of_path, messages, rank_of_path
from asd.ingest.patterns import STRIKE_OUT, LogFinding, read
from asd.ingest.timestamps import LAST, read_time
from asd.origin import Origin
from asd.rundir.follow import Line

__all__ = ["Alarm", "Alarms"]

_LISTS = 1000  # so many files and ranks whose last strike-out is remembered


class Alarm(NamedTuple):
    """An event that was read from a line.

    Attributes:
        event: It.
        repeats_within: Seconds within which the same rank, rule and reason again is the same fact; 0 for never.
    """

    event: Event
    repeats_within: float


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
        self.run = run
        self.host = host
        self._zone = zone
        self._chips_per_card = chips_per_card
        self._clock = clock
        self._lists: dict[str, int] = {}

    def read(self, line: Line) -> list[Alarm]:
        """The alarms in `line`; nearly always none."""
        found = ((message, finding) for message in messages(line.text) for finding in self._findings(line, message))
        return [self._alarm(line, message, finding, number) for number, (message, finding) in enumerate(found)]

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
                self._remember(file, finding.rank)
        return found

    def _remember(self, file: str, rank: int | None) -> None:
        self._lists.pop(file, None)
        self._lists[file] = -1 if rank is None else rank
        while len(self._lists) > _LISTS:
            del self._lists[next(iter(self._lists))]

    def _alarm(self, line: Line, message: LogLine, finding: LogFinding, number: int) -> Alarm:
        ranks = (finding.rank, message.printer, rank_of_path(line.path), -1)
        when = _first(
            finding.time if finding.time is not None and 0 < finding.time < LAST else None,
            read_time(finding.when, self._zone, self._clock) if finding.when else None,
            read_time(message.text, self._zone, self._clock),
        )
        # A file may have inode and first line of one that was deleted, so the place alone does not tell lines apart.
        place = f"{line.key}:{hashlib.sha256(line.text.encode(errors='replace')).hexdigest()[:8]}"
        rank = next(rank for rank in ranks if rank is not None)
        device = finding.device or device_of_path(line.path) or "unknown"
        event = Event(
            origin=Origin(self.run, rank, finding.host or self.host, device),
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
            key=finding.fact or (f"{place}+{number}" if number else place),
        )
        # Without a time in the line nothing says that two of them are near each other.
        return Alarm(event, finding.repeats_within if when is not None else 0.0)


def _first(*times: float | None) -> float | None:
    known: Iterable[float] = (found for found in times if found is not None)
    return next(iter(known), None)
