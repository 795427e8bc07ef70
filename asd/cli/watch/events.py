"""Prints the events of a run in the order of their times, each once, for people or for programs.

All ranks and all rotated files are read. Lines that are no events are passed over and counted.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

from asd.cli.shared.event_table import EventTable
from asd.config import Config
from asd.errors import ConfigError, StateError
from asd.event import KINDS, LEVEL_NAMES, Event
from asd.records import read_time
from asd.rundir.follow import Follower, Line
from asd.rundir.names import event_files

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
Examples:
  asd events                                     all events of the run in ASD_RUN_DIR
  asd events --follow --level first              the first-level anomalies, and each new one as it comes
  asd events --since 2h --device Ascend:3        what happened on one device in the last two hours
  asd events --json | python -m json.tool --json-lines

Of more than nine events of a device within a minute that are alike, the last is a line that counts the rest.

times: 2026-01-31T12:00 (local, unless it names a zone), or how long ago: 30s, 10m, 2h, 3d.
exit codes: 0 done, 1 the run can't be read, 2 wrong usage, 130 interrupted, as --follow ends."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PAUSE = 0.25  # seconds between two looks
_REMEMBERED = 100_000  # events, to know doubles while following


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd events`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--run-dir", metavar="D", help="folder of the run (default: ASD_RUN_DIR)")
    parser.add_argument("--follow", action="store_true", help="go on with new events until interrupted")
    parser.add_argument("--since", metavar="WHEN", help="only events from then on")
    parser.add_argument("--until", metavar="WHEN", help="only events up to then")
    parser.add_argument("--device", metavar="D", action="append", help="only of this device, for example Ascend:3")
    parser.add_argument("--rank", metavar="R", action="append", help="only of this rank")
    parser.add_argument("--level", metavar="L", action="append", help=f"only of this level: {_listed(_LEVELS)}")
    parser.add_argument("--kind", metavar="K", action="append", help=f"only of this kind: {_listed(KINDS)}")
    parser.add_argument("--limit", metavar="N", help="only the last N events, and with --follow all new ones")
    parser.add_argument("--all", action="store_true", help="a line for each event, also of a device that has many")
    parser.add_argument("--json", action="store_true", help="print the events as they stand in the log, a line each")


def run(args: argparse.Namespace) -> int:
    """Prints the events; 1 if a file could not be read."""
    run_dir = Path(args.run_dir or Config.from_env(os.environ).run_dir)
    wanted = _filter(args, time.time())
    limit = _limit(args.limit)
    if not run_dir.is_dir():
        raise StateError(f"there is no run folder {run_dir}; valid is the ASD_RUN_DIR of a run, see --run-dir.")
    _make_robust(args)
    reader = _EventReader(run_dir, wanted)
    table = None if args.json else EventTable(sys.stdout, os.environ, every=args.all)
    try:
        _print(reader.read(limit), table)
        while args.follow:
            _print(reader.read(), table)
            if table is not None:
                table.count(time.time())
            time.sleep(_PAUSE)
    finally:
        if table is not None:
            with contextlib.suppress(BrokenPipeError):
                table.count()
        reader.report()
    return 1 if reader.unreadable else 0


class _EventReader:
    """Reads the events of a run that pass a filter, each once."""

    def __init__(self, run_dir: Path, wanted: Callable[[Event], bool]) -> None:
        self._run_dir = run_dir
        self._wanted = wanted
        self._follower = Follower(lambda: event_files(run_dir))
        self._known: dict[str, None] = {}
        self._bad = 0
        self._any = self._found = False

    @property
    def unreadable(self) -> dict[str, str]:
        return self._follower.unreadable

    def read(self, limit: int | None = None) -> list[tuple[Event, str]]:
        """The events that are new, each with its line, by time; of these the last `limit`, or all of them."""
        new: list[tuple[float, int, Event, str]] = []
        while lines := self._follower.poll():
            for line in lines:
                event = self._event(line)
                if event is not None:
                    new.append((event.time, len(new), event, line.text))
        for identity in list(islice(self._known, max(0, len(self._known) - _REMEMBERED))):
            del self._known[identity]
        found = [(event, text) for *_, event, text in sorted(new, key=lambda item: item[:2])]
        return found if limit is None else found[len(found) - min(limit, len(found)) :]

    def report(self) -> None:
        """Says on standard error what could not be shown."""
        for path, reason in self.unreadable.items():
            print(f"asd: {path} can't be read: {reason}.", file=sys.stderr)
        bad = self._bad + self._follower.skipped
        if bad:
            print(f"asd: {bad} {'line is' if bad == 1 else 'lines are'} no event and passed over.", file=sys.stderr)
        if not self._found:
            print(f"asd: no {'such event' if self._any else 'events'} in {self._run_dir}.", file=sys.stderr)

    def _event(self, line: Line) -> Event | None:
        """The event of a line, when it is wanted and was not read before."""
        try:
            event = Event.from_json(line.text)
        except StateError:
            self._bad += 1
            return None
        self._any = True
        is_new = event.id not in self._known
        self._known[event.id] = None
        if not self._wanted(event):
            return None
        self._found = True
        return event if is_new else None


def _print(found: Sequence[tuple[Event, str]], table: EventTable | None) -> None:
    if table is not None:
        table.add([event for event, _ in found])
    elif found:
        sys.stdout.write("".join(f"{text}\n" for _, text in found))
        sys.stdout.flush()


def _make_robust(args: argparse.Namespace) -> None:
    """JSON is UTF-8 whatever the locale says."""
    if args.json and isinstance(sys.stdout, io.TextIOWrapper):
        with contextlib.suppress(io.UnsupportedOperation):
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _filter(args: argparse.Namespace, now: float) -> Callable[[Event], bool]:
    since = _moment("--since", args.since, now) if args.since is not None else -float("inf")
    until = _moment("--until", args.until, now) if args.until is not None else float("inf")
    ranks = {_rank(text) for text in args.rank or ()}
    levels = {_one_of("--level", text, _LEVELS) for text in args.level or ()}
    kinds = {_one_of("--kind", text, KINDS) for text in args.kind or ()}
    devices = set(args.device or ())

    def wanted(event: Event) -> bool:
        return (
            since <= event.time <= until
            and (not ranks or event.rank in ranks)
            and (not devices or event.device in devices)
            and (not levels or LEVEL_NAMES[event.level] in levels)
            and (not kinds or event.kind in kinds)
        )

    return wanted


def _moment(option: str, text: str, now: float) -> float:
    if match := re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhd])", text, re.ASCII):
        return now - float(match.group(1)) * _UNITS[match.group(2)]
    try:
        return read_time(text).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        valid = "valid is a time such as 2026-01-31T12:00, or how long ago, such as 30s, 10m, 2h or 3d"
        raise ConfigError(option, text, valid) from error


def _rank(text: str) -> int:
    if not re.fullmatch("-1|[0-9]{1,9}", text, re.ASCII):
        raise ConfigError("--rank", text, "valid is a whole number from 0 on, or -1 for an unknown rank")
    return int(text)


def _limit(text: str | None) -> int | None:
    if text is not None and not re.fullmatch("[0-9]{1,9}", text, re.ASCII):
        raise ConfigError("--limit", text, "valid is a whole number from 0 on")
    return None if text is None else int(text)


def _one_of(option: str, text: str, valid: Sequence[str]) -> str:
    if text not in valid:
        raise ConfigError(option, text, f"valid are {_listed(valid)}")
    return text


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)


_LEVELS = tuple(LEVEL_NAMES.values())
