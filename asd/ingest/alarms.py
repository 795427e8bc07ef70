"""Makes events of the alarms in lines of a log."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from datetime import tzinfo
from pathlib import Path

from asd.event import Event
from asd.ingest.log_line import LogLine, device_of_path, messages, rank_of_path
from asd.ingest.patterns import LogFinding, read
from asd.ingest.timestamps import LAST, read_time
from asd.origin import Origin
from asd.rundir.follow import Line

__all__ = ["Alarms"]

_NPU_ID = re.compile(r"\s*NPU ID\s*:\s*([0-9]{1,4})\s*", re.ASCII)


class Alarms:
    """Reads lines of all sources; of each file it remembers the last NPU ID that npu-smi printed, and nothing else.

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
        self._npus: dict[Path, str] = {}

    def read(self, line: Line) -> list[Event]:
        """The alarms in `line`; nearly always none."""
        if match := _NPU_ID.fullmatch(line.text) if "NPU ID" in line.text else None:
            known = self._chips_per_card == 1  # else the chip stands behind the code, and a wrong device is worse
            self._npus[line.path] = f"Ascend:{int(match[1])}" if known else f"Ascend card {int(match[1])}"
        found = [
            (message, finding)
            for message in messages(line.text)
            for finding in read(message, chips_per_card=self._chips_per_card)
        ]
        return [self._event(line, message, finding, number) for number, (message, finding) in enumerate(found)]

    def _event(self, line: Line, message: LogLine, finding: LogFinding, number: int) -> Event:
        ranks = (finding.rank, message.printer, rank_of_path(line.path), -1)
        when = finding.time if finding.time is not None and 0 < finding.time < LAST else None
        for text in (finding.when, message.text):
            when = read_time(text, self._zone, self._clock) if when is None else when
        # A file may have inode and first line of one that was deleted, so the place alone does not tell lines apart.
        place = f"{line.key}:{hashlib.sha256(line.text.encode(errors='replace')).hexdigest()[:8]}"
        key = f"{place}+{number}" if number else place
        device = finding.device or self._npus.get(line.path) or device_of_path(line.path) or "unknown"
        rank = next(rank for rank in ranks if rank is not None)
        return Event(
            origin=Origin(self._run, rank, finding.host or self._host, device),
            step=finding.step,
            checkpoint=finding.checkpoint,
            value=finding.value,
            limits=(),
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
