"""Turns the alarms in the vendor's logs into the same events as ours, through rotation and restarts.

It follows device logs of Ascend (SilentCheck V2, V3 and later), application logs of MindSpore (strikes, strike-outs,
checksums), logs of torch_npu, and the fault codes 80818C00, 80818C05 and 80818C06 of the driver and the device plugin.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asd.cli.shared.policy_options import number, whole_number
from asd.cli.shared.stopping import stopped
from asd.config import Config
from asd.errors import ConfigError, StateError
from asd.event import Event
from asd.exporters.run_files.event_log import EventLog
from asd.ingest import Alarms, Ingest, Known, LogFiles, read_zone
from asd.ingest.log_files import default_places
from asd.records import load_if_there
from asd.rundir import names as run_dir
from asd.rundir.disk import HeldError, sync, take_lock, write_whole

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd ingest`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("paths", nargs="*", metavar="PATH", help="logs to read; default: where Ascend puts them")
    parser.add_argument("--run-dir", metavar="D", help="folder of the run; default: ASD_RUN_DIR")
    parser.add_argument("--run", dest="name", default="ingest", metavar="NAME", help="name of the run in the events")
    parser.add_argument("--host", metavar="NAME", help="machine the logs are from; default: ASD_NODE, or this one")
    parser.add_argument(
        "--timezone", default="", metavar="Z", help="zone of the times in the logs; default: this machine's"
    )
    parser.add_argument(
        "--chips-per-card",
        default="1",
        metavar="N",
        help="chips on one card, to tell the device from the device plugin's numbers; default 1",
    )
    parser.add_argument("--once", action="store_true", help="read what is there and end")
    parser.add_argument("--interval", default="1", metavar="S", help="seconds between two looks; default 1")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end instead, for programs")
    parser.add_argument("--quiet", action="store_true", help="print only what goes wrong")


def run(args: argparse.Namespace) -> int:
    """Reads the logs, until they end with `--once`, or until it is stopped."""
    interval = number("--interval", args.interval, 0.01, 3600, "a number of seconds")
    alarms = Alarms(
        _name("--run", args.name),
        _name("--host", args.host if args.host is not None else Config.of_process().name_of_node()),
        read_zone(args.timezone),
        chips_per_card=whole_number("--chips-per-card", args.chips_per_card, 1, 16),
    )
    folder = Path(_name("--run-dir", args.run_dir if args.run_dir is not None else Config.of_process().run_dir))
    files = _files(args, folder)
    with _locked(folder), stopped() as stop:
        job = _IngestJob(args, folder, files, alarms)
        if args.once:
            job.read_all()
        else:
            job.follow(stop, interval)
        job.sum_up()
    return 0


class _IngestJob:
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
            saved = load_if_there(self._cursor, "cursor", "what `asd ingest` wrote")
            self.ingest = Ingest(files, alarms, self._append, self._save, known, saved)
        except StateError as error:
            _say(
                f"how far the logs were read is not known: {error} They are read from their beginning; an alarm may be "
                "told twice if its log was copied since."
            )
            self.ingest = Ingest(files, alarms, self._append, self._save, known)

    def read_all(self) -> None:
        """Reads what is there."""
        while self.ingest.step():
            self._complain()
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
                "files": ingest.files,
                "lines": ingest.lines,
                "events": dict(events),
                "repeated": ingest.repeated,
                "skipped_lines": ingest.follower.skipped,
                "lost_files": ingest.follower.lost,
                "unreadable": self._unreadable(),
                "event_log": str(self._log.path),
            }
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
            sync(self._log.path)
            self._unsynced = False
        write_whole(self._cursor, json.dumps(state))

    def _complain(self) -> None:
        for path, reason in self._unreadable().items():
            self._once(path, f"{path}: {reason}; it is left out.")
        skipped, lost = self.ingest.follower.skipped, self.ingest.follower.lost
        if skipped:
            self._once(f"skipped {skipped}", f"{skipped} lines were too long and left out.")
        if lost:
            self._once(f"lost {lost}", f"{lost} files vanished before they were read to their end.")

    def _unreadable(self) -> dict[str, str]:
        return {**self._files.unreadable, **self.ingest.follower.unreadable}

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


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lets one process ingest into a folder; the lock ends with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = take_lock(folder / "ingest.lock", str(os.getpid()))
    except HeldError as error:
        raise StateError(
            f"{folder} is in use by another `asd ingest` (process {error.owner}); valid is one for a run folder."
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


def _name(option: str, text: str) -> str:
    if 0 < len(text) <= 1024 and text.isprintable():
        return text
    raise ConfigError(option, text, "it must be a name of printable characters, not empty")


def _show(text: str) -> None:
    print(text, flush=True)


def _say(sentence: str) -> None:
    print(f"asd ingest: {sentence}", file=sys.stderr, flush=True)
