"""Prints the events of a run in order of time, each once, for people or for programs.

All ranks and all rotated files are read. Lines that are not events are skipped and counted.
"""

import argparse
import contextlib
import io
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

from asd.cli.shared.aligned import aligned
from asd.cli.shared.options import add_run_dir, run_dir_of, whole_number
from asd.errors import StateError, printable
from asd.event import KINDS, LEVEL_NAMES, Event
from asd.rundir.follow import Follower, Line
from asd.rundir.names import event_files

_EXAMPLES = """\
Examples:
  asd events                                     all events of the run in ASD_RUN_DIR
  asd events --follow --level first              first-level anomalies, and each new one
  asd events --device Ascend:3                   events of one device
  asd events --json | python -m json.tool --json-lines

exit codes: 0 done, 1 the run cannot be read, 2 wrong usage, 130 interrupted, which ends --follow."""

_HEAD = ("time", "level", "kind", "rank", "device", "step", "checkpoint", "value", "limit", "what")
_PAUSE = 0.25  # seconds between two looks
_REMEMBERED = 100_000  # events, to know doubles while following


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd events`."""
    parser.epilog = _EXAMPLES
    add_run_dir(parser)
    parser.add_argument("--follow", action="store_true", help="continue with new events until interrupted")
    parser.add_argument("--device", action="append", help="only this device, for example Ascend:3")
    parser.add_argument("--rank", action="append", type=whole_number(-1), help="only this rank; -1: unknown")
    parser.add_argument("--level", action="append", choices=tuple(LEVEL_NAMES.values()), help="only this level")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind")
    parser.add_argument("--json", action="store_true", help="print the events as in the log, one per line")


def run(args: argparse.Namespace) -> int:
    """Prints the events; returns 1 if a file could not be read, else 0."""
    run_dir = run_dir_of(args)
    if not run_dir.is_dir():
        raise StateError(f"there is no run folder {run_dir}; pass the ASD_RUN_DIR of a run as --run-dir.")
    if args.json and isinstance(sys.stdout, io.TextIOWrapper):
        with contextlib.suppress(io.UnsupportedOperation):  # JSON is UTF-8 whatever the locale says
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    reader = _EventReader(run_dir, args)
    heads: list[tuple[str, ...]] = [_HEAD]
    try:
        _print(reader.read(), heads, as_json=args.json)
        while args.follow:
            time.sleep(_PAUSE)
            _print(reader.read(), heads, as_json=args.json)
    finally:
        reader.report()
    return 1 if reader.follower.unreadable else 0


class _EventReader:
    """Reader of the events of a run that pass a filter, each once."""

    def __init__(self, run_dir: Path, args: argparse.Namespace) -> None:
        self._run_dir = run_dir
        self._args = args
        self.follower = Follower(lambda: event_files(run_dir))
        self._known: dict[str, None] = {}
        self._bad = 0
        self._found = False

    def read(self) -> list[tuple[Event, str]]:
        """Returns new events, each with its line, by time."""
        new: list[tuple[Event, str]] = []
        while lines := self.follower.poll():
            new += [(event, line.text) for line in lines if (event := self._event(line)) is not None]
        for identity in list(islice(self._known, max(0, len(self._known) - _REMEMBERED))):
            del self._known[identity]
        return sorted(new, key=lambda item: item[0].time)

    def report(self) -> None:
        """Reports on standard error what could not be shown."""
        for path, reason in self.follower.unreadable.items():
            print(f"asd: {path} can't be read: {reason}.", file=sys.stderr)
        bad = self._bad + self.follower.skipped
        if bad:
            print(f"asd: {bad} {'line is' if bad == 1 else 'lines are'} not an event, skipped.", file=sys.stderr)
        if not self._found:
            print(f"asd: no {'such event' if self._known else 'events'} in {self._run_dir}.", file=sys.stderr)

    def _event(self, line: Line) -> Event | None:
        """Returns the event of a line, if it passes the filter and is new."""
        try:
            event = Event.from_json(line.text)
        except StateError:
            self._bad += 1
            return None
        is_new = event.id not in self._known
        self._known[event.id] = None
        if not self._wanted(event):
            return None
        self._found = True
        return event if is_new else None

    def _wanted(self, event: Event) -> bool:
        args = self._args
        return (
            (args.rank is None or event.rank in args.rank)
            and (args.device is None or event.device in args.device)
            and (args.level is None or LEVEL_NAMES[event.level] in args.level)
            and (args.kind is None or event.kind in args.kind)
        )


def _print(found: Sequence[tuple[Event, str]], heads: list[tuple[str, ...]], *, as_json: bool) -> None:
    """Prints events; only the first ones have the head of the table."""
    if found and as_json:
        print("".join(f"{text}\n" for _, text in found), end="", flush=True)
    elif found:
        print(aligned([*heads, *(_cells(event) for event, _ in found)]), flush=True)
        heads.clear()


def _cells(event: Event) -> tuple[str, ...]:
    has_value = event.kind in ("anomaly", "replay")
    done = "healed" if event.healed else "update refused" if event.refused else ""
    refused = done if event.kind == "anomaly" else ""
    what = (event.verdict, event.reason, refused, event.evidence and f"evidence {event.evidence}")
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
        "; ".join(filter(None, what)),
    )
    return tuple(map(printable, cells))


def _local_time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).isoformat(" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{seconds:.3f}"  # no year of this calendar here, though one in UTC
