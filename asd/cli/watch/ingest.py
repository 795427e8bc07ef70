"""Converts the alarms in the vendor's logs to events, across rotations and restarts.

It follows device logs of Ascend (SilentCheck V2, V3 and later) and application logs of MindSpore (strikes, strike-outs,
checksums). It finds the fault codes 80818C00, 80818C05 and 80818C06 of the driver and the device plugin in their logs,
the output of `npu-smi info -t health`, a scrape of npu-exporter, and the ConfigMap mindx-dl-deviceinfo-NODE.
"""

import argparse
import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from asd.cli.shared.options import add_run_dir, run_dir_of
from asd.cli.shared.progress import write_line
from asd.cli.shared.stopping import stopped
from asd.config import Config
from asd.errors import ConfigError, StateError
from asd.event import CODE, Event
from asd.exporters.run_files.event_log import EventLog
from asd.ingest.alarms import Alarms
from asd.ingest.log_files import LogFiles, default_places
from asd.ingest.reader import Ingest
from asd.rundir.disk import HeldError, take_lock
from asd.rundir.names import ingest_file

_EXAMPLES = """\
PATH is a file, a folder or a pattern in quotes. Rotated parts of a file (x.log.1) are read, packed ones skipped.
Default: $ASCEND_PROCESS_LOG_PATH, $ASCEND_WORK_PATH/log, ~/ascend/log, and worker_*.log of this folder.

Examples:
  asd ingest                                        follow the logs of this machine
  asd ingest --once ~/ascend/log worker_0.log       read the existing lines, print a summary, and end
  kubectl -n kube-system get cm mindx-dl-deviceinfo-node7 -o json > now.txt; asd ingest --once now.txt --host node7
  TZ=Asia/Shanghai asd ingest '/var/log/npu/**/device-*.log'   for logs with a different time zone

Events are written to RUN_DIR/events-ingest.jsonl. After a restart it continues: no line is lost or read twice.

exit codes: 0 done or ended by SIGTERM, 1 the job failed, 2 wrong usage."""

_PAUSE = 1.0  # seconds between two looks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd ingest`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("paths", nargs="*", metavar="PATH", help="logs to read (default: the folders of Ascend)")
    add_run_dir(parser)
    parser.add_argument("--host", help="machine of the logs (default: ASD_NODE, or this one)")
    parser.add_argument("--once", action="store_true", help="read the existing lines and end")


def run(args: argparse.Namespace) -> int:
    """Reads the logs: with `--once` to their ends, else until it is stopped."""
    config = Config.of_process()
    alarms = Alarms(args.host or config.name_of_node())
    folder = run_dir_of(args)
    files = _files(args)
    with _locked(folder), stopped() as stop:
        job = _IngestJob(folder, files, alarms)
        if args.once:
            job.read_all()
        else:
            job.follow(stop)
        write_line(sys.stdout, job.summary())
    return 0


class _IngestJob:
    """Run of the command."""

    def __init__(self, folder: Path, files: LogFiles, alarms: Alarms) -> None:
        self._folder, self._files = folder, files
        self._log = EventLog(ingest_file(folder))
        self._said: set[str] = set()
        self.ingest = Ingest(files, alarms, self._append, folder)

    def read_all(self) -> None:
        """Reads the logs to their present ends."""
        while self.ingest.step():
            self._complain()
        self.ingest.finish()
        self._complain()

    def follow(self, stop: threading.Event) -> None:
        """Reads until `stop` is set."""
        while not stop.is_set():
            try:
                more = self.ingest.step()
                self._said.discard("write")
            except BrokenPipeError:  # the reader of the output has gone; the event itself is written
                raise
            except OSError as error:
                more = False
                self._once("write", f"{error.filename or self._folder}: {error.strerror or error}; trying again.")
            self._complain()
            if not more:
                stop.wait(_PAUSE)

    def summary(self) -> str:
        """Returns the numbers of files, lines and events."""
        ingest, events = self.ingest, self.ingest.events
        return (
            f"{len(self._files())} files, {ingest.lines} lines, {sum(events.values())} new events ({events['first']} "
            f"first level, {events['second']} second level, {events['normal']} recovered); events are in "
            f"{self._log.path}"
        )

    def _append(self, event: Event) -> None:
        self._log(event)
        write_line(sys.stdout, event.sentence())

    def _complain(self) -> None:
        for path, reason in {**self._files.unreadable, **self.ingest.follower.unreadable}.items():
            self._once(path, f"{path}: {reason}; it is left out.")
        for each in sorted(self.ingest.unexplained):
            self._once(f"{each} {CODE}", f"{each} contains {CODE}, but in no known format: no event was made.")
        skipped, lost = self.ingest.follower.skipped, self.ingest.follower.lost
        if skipped:
            self._once("skipped", f"{skipped} lines were too long and left out.")
        if lost:
            self._once("lost", f"{lost} files vanished before they were read to their end.")

    def _once(self, topic: str, sentence: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            write_line(sys.stderr, f"asd ingest: {sentence}")


def _files(args: argparse.Namespace) -> LogFiles:
    files = LogFiles(args.paths or default_places(os.environ, Path(os.path.expanduser("~"))))
    missing = files.missing()
    if missing and (args.paths or len(missing) == len(files.places)):
        if args.once:
            valid = "it must be a file, a folder or a pattern that fits one"
            raise ConfigError("PATH", missing[0] if args.paths else ", ".join(missing), valid)
        write_line(sys.stderr, f"asd ingest: nothing is at {', '.join(missing)} yet; waiting for it.")
    return files


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks a folder, so that one process ingests into it; the lock ends with the process, however that ends."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = take_lock(folder / "ingest.lock", str(os.getpid()))
    except HeldError as error:
        raise StateError(
            f"{folder} is in use by another `asd ingest` (process {error.owner}); run only one per run folder."
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)
