"""Events as aligned lines for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TextIO

from asd.cli.shared.printable import printable
from asd.event import LEVEL_NAMES, Event
from asd.verdict import Level

__all__ = ["EventTable"]

_WIDEST = 80  # characters of a column: one endless name must not blow up every other line
_HEAD = ("time", "level", "kind", "rank", "device", "step", "checkpoint", "value", "limit", "what")
_NUMBERS = {"rank", "step", "value", "limit"}
_RED, _YELLOW, _GREEN, _DIM, _END = "\033[1;31m", "\033[33m", "\033[32m", "\033[2m", "\033[0m"
_COLOURS = {"isolation": _RED, "recovery": _GREEN, "problem": _YELLOW, "follower": _DIM}


class EventTable:
    """Prints events below one head; columns grow when they have to.

    Args:
        out: Where to; colours only if it is a terminal.
        environ: `NO_COLOR` and `TERM=dumb` take the colours away.
    """

    def __init__(self, out: TextIO, environ: Mapping[str, str]) -> None:
        self._out = out
        self._colours = out.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
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
        for event, row in zip(events, rows, strict=True):
            text, colour = line.format(*row).rstrip(), self._colour(event)
            self._out.write(f"{colour}{text}{_END}\n" if colour else text + "\n")
        self._out.flush()

    def _colour(self, event: Event) -> str:
        if not self._colours:
            return ""
        if event.level is Level.ERROR:
            return _RED
        return _COLOURS.get(event.kind, _YELLOW if event.level is Level.WARNING else "")


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
