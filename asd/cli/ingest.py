"""Turns the alarms in the vendor's logs into the same events as ours, through rotation and restarts.

It follows device logs of Ascend (SilentCheck V2, V3 and later), application logs of MindSpore (strikes, strike-outs,
checksums), logs of torch_npu, and the fault codes 80818C00, 80818C05 and 80818C06 of the driver and the device plugin.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from asd import run_dir
from asd.config import Config
from asd.errors import ConfigError, StateError
from asd.event import Event
from asd.exporters.event_log import EventLog
from asd.ingest import Alarms, Ingest, Known, LogFiles, read_zone
from asd.ingest.log_files import default_places
from asd.statefile import write_whole

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
PATH is a file, a folder or a pattern in quotes; rotated parts of a file (x.log.1) belong to it, packed ones are passed
over. Without one: $ASCEND_PROCESS_LOG_PATH, $ASCEND_WORK_PATH/log, ~/ascend/log, and worker_*.log of this folder.

Examples:
  asd ingest                                        follow the logs of this machine
  asd ingest --once ~/ascend/log worker_0.log       read what is there, say what was found, and end
  asd ingest '/var/log/npu/**/device-*.log' --timezone Asia/Shanghai

Events go to RUN_DIR/events-ingest.jsonl. Started again, it goes on where it ended: no line is lost and none doubled.

exit codes: 0 done or ended by SIGTERM, 1 the job failed, 2 wrong usage."""

_SETTLE = 0.2  # seconds; a last line that has no end and does not grow for so long is taken as it is


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd ingest`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("paths", nargs="*", metavar="PATH", help="logs to read; default: where Ascend puts them")
    parser.add_argument("--run-dir", metavar="D", help="folder of the run; default: ASD_RUN_DIR")
    parser.add_argument("--run", dest="name", default="ingest", metavar="NAME", help="name of the run in the events")
    parser.add_argument("--host", metavar="NAME", help="machine the logs are from; default: this one")
    parser.add_argument(
        "--timezone", default="", metavar="Z", help="zone of the times in the logs; default: this machine's"
    )
    parser.add_argument(
        "--chips-per-card", default="1", metavar="N",
        help="chips on one card, to tell the device from the device plugin's numbers; default 1",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="read what is there and end")
    parser.add_argument("--interval", default="1", metavar="S", help="seconds between two looks; default 1")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end instead, for programs")
    parser.add_argument("--quiet", action="store_true", help="print only what goes wrong")


def run(args: argparse.Namespace) -> int:
    """Reads the logs, until they end with `--once`, or until it is stopped."""
    interval = _seconds("--interval", args.interval)
    alarms = Alarms(
        _name("--run", args.name), _name("--host", args.host if args.host is not None else socket.gethostname()),
        read_zone(args.timezone), chips_per_card=_count("--chips-per-card", args.chips_per_card),
    )  # fmt: skip
    folder = Path(_name("--run-dir", args.run_dir if args.run_dir is not None else Config.of_process().run_dir))
    files = _files(args, folder)
    with _locked(folder), _stopped() as stop:
        job = _Job(args, folder, files, alarms)
        if args.once:
            job.read_all()
        else:
            job.follow(stop, interval)
        job.sum_up()
    return 0


class _Job:
    """One run of the command."""

    def __init__(self, args: argparse.Namespace, folder: Path, files: LogFiles, alarms: Alarms) -> None:
        self._args = args
        self._folder = folder
        self._files = files
        self._cursor = run_dir.cursor_file(folder, "ingest")
        self._log = EventLog(run_dir.ingest_file(folder))
        self._unsynced = False
        self._said: set[str] = set()
        known = Known()
        written = [path for path in run_dir.event_files(folder) if path.name.startswith(self._log.path.name)]
        known.load(written[-2:])  # more than one batch, even if the log was rotated in the middle of it
        try:
            self.ingest = Ingest(files, alarms, self._append, self._save, known, _load(self._cursor))
        except StateError as error:
            _say(
                f"{self._cursor}: {error} The logs are read from their beginning; an alarm may be told twice if "
                "its log was copied since."
            )
            self.ingest = Ingest(files, alarms, self._append, self._save, known)

    def read_all(self) -> None:
        """Reads what is there."""
        while self.ingest.step():
            self._complain()
        tails = self.ingest.unfinished()
        if tails:
            time.sleep(_SETTLE)
            if self.ingest.unfinished() == tails:
                self.ingest.finish()
        self._complain()

    def follow(self, stop: threading.Event, interval: float) -> None:
        """Reads on until `stop` is set."""
        while not stop.is_set():
            try:
                more = self.ingest.step()
                self._said.discard("write")
            except BrokenPipeError:  # nobody reads what is printed any more; the event itself is written
                raise
            except OSError as error:
                more = False
                self._once("write", f"{error.filename or self._folder}: {error.strerror or error}; trying again.")
            self._complain()
            if not more:
                stop.wait(interval)

    def sum_up(self) -> None:
        """Says what was read."""
        ingest, events = self.ingest, self.ingest.events
        if self._args.quiet:
            return
        if self._args.json:
            summary = {
                "files": ingest.files, "lines": ingest.lines, "events": dict(events), "repeated": ingest.repeated,
                "skipped_lines": ingest.skipped, "lost_files": ingest.lost, "unreadable": self._unreadable(),
                "event_log": str(self._log.path),
            }  # fmt: skip
            _show(json.dumps(summary))
            return
        found = f"{events['first']} first level, {events['second']} second level"
        if events["normal"]:
            found += f", {events['normal']} recovered"
        _show(
            f"{ingest.files} files, {ingest.lines} lines, {sum(events.values())} new events ({found}), "
            f"{ingest.repeated} known before; events are in {self._log.path}"
        )

    def _append(self, event: Event) -> None:
        self._log(event)
        self._unsynced = True
        if not (self._args.quiet or self._args.json):
            _show(event.sentence())

    def _save(self, state: dict[str, Any]) -> None:
        if self._unsynced:  # the cursor must never be ahead of the events, not even after a power cut
            descriptor = os.open(self._log.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._unsynced = False
        write_whole(self._cursor, json.dumps(state))

    def _complain(self) -> None:
        for path, reason in self._unreadable().items():
            self._once(path, f"{path}: {reason}; it is left out.")
        if self.ingest.skipped:
            self._once(f"skipped {self.ingest.skipped}", f"{self.ingest.skipped} lines were too long and left out.")
        if self.ingest.lost:
            self._once(
                f"lost {self.ingest.lost}", f"{self.ingest.lost} files vanished before they were read to their end."
            )

    def _unreadable(self) -> dict[str, str]:
        return {**self._files.unreadable, **self.ingest.unreadable}

    def _once(self, topic: str, sentence: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            _say(sentence)


def _files(args: argparse.Namespace, folder: Path) -> LogFiles:
    files = LogFiles(args.paths or default_places(os.environ, Path.home()), without=folder)
    missing = files.missing()
    if args.paths and missing:
        if args.once:
            raise ConfigError("PATH", missing[0], "it must be a file, a folder or a pattern that fits one")
        _say(f"nothing is at {', '.join(missing)} yet; waiting for it.")
    elif not args.paths and len(missing) == len(files.places):
        if args.once:
            raise ConfigError("PATH", "", f"it must be given, as no log is at {', '.join(missing)}")
        _say(f"no log is at {', '.join(missing)} yet; waiting for one.")
    return files


def _load(path: Path) -> Any:
    """What the cursor file holds; None when there is none."""
    try:
        state = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise StateError(f"it is corrupt: {error}.") from error
    if not isinstance(state, dict):
        raise StateError(f"it holds a {type(state).__name__}; valid is an object.")
    return state


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lets one process ingest into a folder; the lock ends with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "ingest.lock", "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            owner = file.read(32).strip() or "another"
            raise StateError(
                f"{folder} is in use by another `asd ingest` (process {owner}); valid is one for a run folder."
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextlib.contextmanager
def _stopped() -> Iterator[threading.Event]:
    """An event that SIGTERM sets."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)


def _seconds(option: str, text: str) -> float:
    with contextlib.suppress(ValueError):
        value = float(text)
        if math.isfinite(value) and 0.01 <= value <= 3600:
            return value
    raise ConfigError(option, text, "it must be a number of seconds from 0.01 to 3600")


def _count(option: str, text: str) -> int:
    if text.isascii() and text.isdecimal() and 1 <= int(text[:4]) <= 16:
        return int(text)
    raise ConfigError(option, text, "it must be a whole number from 1 to 16")


def _name(option: str, text: str) -> str:
    if 0 < len(text) <= 1024 and text.isprintable():
        return text
    raise ConfigError(option, text, "it must be a name of printable characters, not empty")


def _show(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _say(sentence: str) -> None:
    print(f"asd ingest: {sentence}", file=sys.stderr, flush=True)
