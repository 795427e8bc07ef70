"""Trainings of a drill: runs them one after the other, each in a folder of its own, and reads what they leave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from asd.drill import REFUSED, VARIABLE, TrainingPlan
from asd.errors import ConfigError
from asd.event import Event
from asd.supervisor.processes import find_launcher, free_port, kept, resolve
from asd.supervisor.worker import END
from asd.verdict import Level

HUNG = 124  # exit code, as of `timeout`, of a training that took far longer than the longest before it
_MOST_LINES, _TAIL, _PATIENCE = 16, 65536, 60.0
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DrillJob(NamedTuple):
    """A drill to make.

    Attributes:
        command: Training command with the path of its program.
        environ: Environment of the trainings.
        work: Folder `.work-NUMBER` for the trainings, which is made and removed; the folder above it exists.
        minutes: Longest time of all.
        steps: Steps of each training.
        faults: Number of faults to try.
        pairs: Pairs of trainings without and with detection.
        redirects: Whether files that the training writes are redirected.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    work: Path
    minutes: float
    steps: int
    faults: int
    pairs: int
    redirects: bool


@dataclass
class Trained:
    """Result of one training.

    Attributes:
        code: Exit code, or `HUNG`; None if it had to be killed, as its time was over.
        records: Records by `asd.operators.drill.child`, one for each rank, in their order.
        events: Events, by time.
        statuses: Status of each rank, as JSON.
        tail: Last lines of its output.
    """

    code: int | None
    records: list[dict[str, Any]]
    events: list[Event]
    statuses: list[dict[str, Any]]
    tail: list[str]

    @property
    def ended(self) -> bool:
        """Returns whether the drill ended it, after all its steps."""
        return self.code == 0 and bool(self.records) and all(record["ended"] for record in self.records)

    def of(self, level: Level) -> list[Event]:
        """Returns the anomalies of this level."""
        return [event for event in self.events if event.kind == "anomaly" and event.level is level]


class Trainings:
    """Runs the trainings of a drill.

    Args:
        job: What to do.
        events_of: Reads all events of a run folder.

    Attributes:
        steps: Steps of each training from now on.
        temporary: Folder outside the work, which may be on a disk of the network or have too long a path for a socket.
    """

    def __init__(self, job: DrillJob, events_of: Callable[[Path], list[Event]]) -> None:
        self._job, self._work, self._events_of, self.steps = job, job.work, events_of, job.steps
        self._end, self._number, self._longest = time.monotonic() + job.minutes * 60, 0, 0.0
        place = os.path.realpath(tempfile.gettempdir())  # a path through a link would be redirected
        self.temporary = tempfile.TemporaryDirectory(prefix="asd-", dir=place, ignore_cleanup_errors=True)

    def close(self) -> None:
        """Removes what the trainings have left."""
        for folder, *_ in os.walk(self._work):
            with suppress(OSError):
                os.chmod(folder, 0o700)  # else a read-only one would stay
        shutil.rmtree(self._work, ignore_errors=True)
        self.temporary.cleanup()

    def seconds_left(self) -> float:
        """Returns how long a process may run: to the end of the drill, but at least a minute."""
        return max(60.0, self._end - time.monotonic())

    def has_time(self, trainings: int = 1) -> bool:
        """Returns whether so many trainings will end in time, if each takes as long as the longest one did."""
        return time.monotonic() + trainings * self._longest < self._end

    def train(self, detects: str, fault: str = "", *, follow: Callable[[Path], None] | None = None) -> Trained:
        """Runs one training to its end, and removes its folder.

        Args:
            detects: Value of `NPU_ASD_ENABLE`.
            fault: Fault to inject, as text.
            follow: Called with its run folder once it has begun.

        Raises:
            ConfigError: It writes what cannot be redirected.
        """
        self._number += 1
        folder = self._work / f"{self._number}"
        TrainingPlan(str(folder), self.steps, self._job.redirects, fault).save()
        run_dir, log, temporary = folder / "run", folder / "log", Path(self.temporary.name, f"{self._number}")
        temporary.mkdir()
        settings = {
            VARIABLE: str(folder),
            "ASD_RUN_DIR": str(run_dir),
            "ASD_RUN": f"drill-{self._number}",
            "NPU_ASD_ENABLE": detects,
            "TMPDIR": str(temporary),
            "LOCAL_DEFAULT_PATH": str(folder / "mindformers"),
            "OM_MODULES_CACHE": str(folder / "modules"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "WANDB_MODE": "disabled",
        }
        program = Path(self._job.command[0])
        if program.name.startswith(("python", "msrun")):  # the launcher starts a Python by its name
            settings["PATH"] = f"{program.parent}{os.pathsep}{self._job.environ.get('PATH', os.defpath)}"
        if fault:
            settings |= {"ASD_ON_ANOMALY": "skip"}
        began, most = time.monotonic(), _PATIENCE + 5 * self._longest if self._longest else inf
        with log.open("wb") as output, running(self._job.command, {**self._job.environ, **settings}, output) as process:
            if follow is not None:
                follow(run_dir)
            code = wait(process, min(most, self.seconds_left()))
        code = HUNG if code is None and self.has_time(0) else code
        self._longest = max(self._longest, time.monotonic() - began if code != HUNG else 0)
        workers = sorted(self._work.glob("**/worker_*.log"), key=lambda path: path.stat().st_mtime) if code else []
        tail = (workers or [log])[0].read_bytes()[-_TAIL:].decode(errors="replace").splitlines()[-_MOST_LINES:]
        records = [json.loads(path.read_text()) for path in folder.glob("record-rank*.json")]
        statuses = [json.loads(path.read_text()) for path in run_dir.glob("status-rank*.json")]
        events = sorted(self._events_of(run_dir), key=lambda event: event.time)
        if (refused := folder / REFUSED).exists():
            path = refused.read_text(encoding="utf-8").splitlines()[0]
            raise ConfigError(
                "COMMAND", path, "the training must write only files that can be redirected: pass --allow-writes"
            )
        for each in (folder, temporary):
            shutil.rmtree(each, ignore_errors=True)  # what cannot go yet goes in `close`
        return Trained(code, sorted(records, key=lambda each: each["rank"]), events, statuses, tail)


def on_interrupt(handler: Any) -> dict[signal.Signals, Any]:
    """Sets the handler of all interrupts but those that this process ignores, as under nohup; returns those before."""
    heard = [each for each in _INTERRUPTS if signal.getsignal(each) is not signal.SIG_IGN]
    return {each: signal.signal(each, handler) for each in heard}


def interrupt_once(*_: Any) -> None:
    """Handles an interrupt; another one would keep the drill from removing what it has made."""
    on_interrupt(signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def running(words: Sequence[str], environ: Mapping[str, str], output: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process in a session of its own; whatever happens, it and all that it started have ended afterwards."""
    late: list[int] = []  # an interrupt within Popen would leave a process running
    handlers = on_interrupt(lambda number, _: late.append(number))
    try:
        process = subprocess.Popen(
            kept(words),
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    try:
        if late:
            signal.raise_signal(late[0])
        yield process
    finally:
        if process.poll() is None:
            with suppress(psutil.Error):  # first the launcher: srun ends its ranks on other machines
                for each in (children := psutil.Process(process.pid).children()):
                    each.terminate()
                psutil.wait_procs(children, 10)
            process.send_signal(END)
            if wait(process, 15) is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def held() -> set[str]:
    """Returns the files that processes hold open for writing, as `tee` does; those of a training have ended."""
    files = (file for each in psutil.process_iter(["open_files"]) for file in each.info["open_files"] or ())
    return {file.path for file in files if file.mode != "r"}


def wait(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """Returns the exit code of a process; None if it is still running when the time is over."""
    with suppress(subprocess.TimeoutExpired):
        return process.wait(seconds)
    return None


def command_of(words: Sequence[str], ranks: int | None, work: Path, path: str) -> list[str]:
    """Returns the training command with the path of its program, behind MindSpore's launcher where ranks are given."""
    command = resolve(words, path)
    if ranks is None:
        return command
    counts = [f"--worker_num={ranks}", f"--local_worker_num={ranks}", "--join=True", f"--log_dir={work / 'msrun'}"]
    address = ["--master_addr=127.0.0.1", f"--master_port={free_port()}"]
    # The launcher runs any other word than this as a script of the `python` in PATH, which may be another one.
    start = "import os, signal, sys; signal.signal(signal.SIGPIPE, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    return [find_launcher(command[0], path), *counts, *address, "python3", "-ISc", start, *command]
