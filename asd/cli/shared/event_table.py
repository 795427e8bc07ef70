"""Events as aligned lines for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TextIO

from asd.cli.shared.printable import printable
from asd.event import LEVEL_NAMES, Event

__all__ = ["EventTable"]

_WIDEST = 80  # characters of a column: one endless name must not blow up every other line
_HEAD = ("time", "level", "kind", "rank", "device", "step", "checkpoint", "value", "limit", "what")
_NUMBERS = {"rank", "step", "value", "limit"}


class EventTable:
    """Prints events below one head to `out`; columns grow when they have to."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._widths = [len(name) for name in _HEAD[:-1]]
        self._begun = False

    def add(self, events: Sequence[Event]) -> None:
        """Prints `events`, in their order, and flushes."""
        if not events:
            return
        rows = [_cells(event) for event in events]
        widest = [max(map(len, column)) for column in zip(*rows, strict=True)]
        self._widths = [max(width, min(new, _WIDEST)) for width, new in zip(self._widths, widest, strict=False)]
        columns = zip(_HEAD, self._widths, strict=False)
        line = "  ".join(f"{{:{'>' if name in _NUMBERS else '<'}{width}}}" for name, width in columns) + "  {}"
        if not self._begun:
            self._begun = True
            self._out.write(line.format(*_HEAD) + "\n")
        self._out.writelines(line.format(*row).rstrip() + "\n" for row in rows)
        self._out.flush()


def _cells(event: Event) -> tuple[str, ...]:
    has_value = event.kind in ("anomaly", "replay")
    cells = (
        _local_time(event.time),
        LEVEL_NAMES[event.level],
        event.kind,
        str(event.rank) if event.rank >= 0 else "-",
        event.device,
        str(event.step or "-"),
        event.checkpoint or "-",
        f"{event.value:.6g}" if has_value else "-",
        ",".join([f"{limit:.6g}" for limit in event.limits]) or "-",
        _what(event),
    )
    return cells if "".join(cells).isprintable() else tuple(map(printable, cells))


def _what(event: Event) -> str:
    parts = [
        event.verdict,
        event.reason,
        "update refused" if event.refused and event.kind == "anomaly" else "",
        f"evidence {event.evidence}" if event.evidence else "",
    ]
    return "; ".join(filter(None, parts))


def _local_time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).isoformat(" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.3f}"  # no year of this calendar here, though one in UTC
