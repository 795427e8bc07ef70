"""Makes events of the alarms in lines of a log."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from asd.event import Event
from asd.ingest.alarm_patterns import read
from asd.ingest.log_line import LogFinding, device_of_path, messages, rank_of_path
from asd.ingest.timestamps import LAST, read_time
from asd.origin import Origin
from asd.rundir.follow import Line

_NPU = re.compile(r"\s*(NPU ID|Chip Count)\s*:\s*([0-9]{1,4})\s*", re.ASCII)


class Alarms:
    """Reads lines of all sources; of each file it remembers the last NPU that npu-smi printed, and nothing else.

    Lines that name no machine are of `host`, and those without a time of the clock's.
    """

    def __init__(self, host: str, *, clock: Callable[[], float] = time.time) -> None:
        self._host, self._clock = host, clock
        self._npus: dict[Path, str] = {}

    def read(self, line: Line) -> list[Event]:
        """Returns the alarms in `line`; nearly always none."""
        if match := _NPU.fullmatch(line.text):
            if match[1] == "NPU ID":
                self._npus[line.path] = f"Ascend:{int(match[2])}"
            elif int(match[2]) > 1:  # which of them it is stands behind the code, and a wrong device is worse than none
                self._npus[line.path] = self._npus.get(line.path, "").replace(":", " card ")
        found = [(message, finding) for message in messages(line.text) for finding in read(message)]
        return [self._event(line, message, finding, number) for number, (message, finding) in enumerate(found)]

    def _event(self, line: Line, message: str, finding: LogFinding, number: int) -> Event:
        ranks = (finding.rank, rank_of_path(line.path), -1)
        now = self._clock()
        when = finding.time if 0 < finding.time < LAST else read_time(message, now)
        # A file may have inode and first line of one that was deleted, so the place alone does not tell lines apart.
        place = f"{line.key}:{hashlib.sha256(line.text.encode(errors='replace')).hexdigest()[:8]}"
        key = f"{place}+{number}" if number else place
        device = finding.device or self._npus.get(line.path) or device_of_path(line.path) or "unknown"
        rank = next(rank for rank in ranks if rank is not None)
        same = ("step", "value", "level", "kind", "rule", "feature", "reason", "code")
        return Event(
            origin=Origin("ingest", rank, finding.host[:512] or self._host, device),
            checkpoint=finding.checkpoint[:512],  # the longest name that is read again
            limits=(),
            refused=False,
            time=now if when is None else when,
            key=key,
            recovered_by="vendor" if finding.kind == "recovery" else "",
            **{name: getattr(finding, name) for name in same},
        )
