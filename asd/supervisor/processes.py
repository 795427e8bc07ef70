"""Processes of one attempt: their start by MindSpore's launcher `msrun`, and their end."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from asd.errors import ConfigError, UnsupportedError
from asd.origin import mounted_chips
from asd.supervisor.record import Attempt
from asd.supervisor.worker import END

_KEEPER = Path(__file__).with_name("keeper.py")
_WORKER = Path(__file__).with_name("worker.py")
_PAUSE = 0.1
_KILL_SECONDS = 15.0
# A launcher that ignores TERM, USR1 and USR2, which would end it first. A shell would drop variables with odd names.
_IGNORE = (
    "from os import*;from signal import*;[signal(n,SIG_IGN)for n in(SIGTERM,SIGUSR1,SIGUSR2)];signal(SIGPIPE,SIG_DFL)"
)
_DEAF = (sys.executable, "-ISc", f"{_IGNORE};import sys;execv(sys.argv[1],sys.argv[1:])")
_NO_RANK = "9999"  # the launcher shows no rank's output: the supervisor does, without losing the end


def kept(words: Sequence[str]) -> list[str]:
    """Returns a command that runs `words` under the keeper, for this process as its supervisor."""
    paths = os.pathsep.join(filter(None, sys.path))
    return [sys.executable, "-I", str(_KEEPER), paths, str(os.getpid()), *words]


def resolve(command: Sequence[str], path: str) -> list[str]:
    """Returns `command` with the program's absolute path; puts Python before a script, as `msrun` does."""
    words = list(command)
    if words[0].endswith(".py") and not os.access(words[0], os.X_OK):
        words.insert(0, "python")
    program = shutil.which(words[0], path=path)
    if program is None:
        raise ConfigError("COMMAND", words[0], "it must be a program in PATH, or the path of an executable file")
    return [os.path.abspath(program), *words[1:]]  # a link in a virtual environment stays one


def find_launcher(program: str, path: str) -> str:
    """Returns MindSpore's launcher: beside `program`, else in `path`."""
    for places in (str(Path(program).parent), path, str(Path(sys.executable).parent)):
        found = shutil.which("msrun", path=places)
        if found is not None:
            return found
    raise UnsupportedError("MindSpore's launcher msrun must be in PATH; it comes with mindspore.")


def launch(
    command: Sequence[str], environ: Mapping[str, str], attempt: Attempt, folder: Path
) -> tuple[list[str], dict[str, str]]:
    """Returns the launcher's command line and its whole environment for one attempt, with its logs in `folder`."""
    devices = attempt.devices  # ascending, one for each rank
    numbers = ",".join(map(str, devices))
    path = environ.get("PATH", os.defpath)
    if shutil.which("python", path=path) is None:  # the launcher runs its scripts with that one
        path = os.pathsep.join([str(Path(sys.executable).parent), path])
    ranks, port = len(devices), free_port()
    places = ["--master_addr=127.0.0.1", f"--master_port={port}", f"--log_dir={folder}"]
    counts = [f"--worker_num={ranks}", f"--local_worker_num={ranks}", "--join=True", f"--tail_worker_log={_NO_RANK}"]
    words = [*_DEAF, find_launcher(command[0], path), *counts, *places, str(_WORKER), str(folder), numbers, *command]
    mounted = mounted_chips()
    visible = ",".join(str(mounted.index(each) if each in mounted else each) for each in devices)
    settings = {"PATH": path, "ASD_RUN": attempt.run, "ASD_DEVICES": numbers, "ASCEND_RT_VISIBLE_DEVICES": visible}
    resume = {"ASD_RESUME_FROM": attempt.resume_from, "ASD_RESUME_STEP": str(attempt.resume_step)}
    return words, {**environ, **settings, **resume}


def free_port() -> int:
    """Returns a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Processes:
    """The launcher and everything that it starts, in a separate session."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for old in [*folder.glob("rank*.exit"), *folder.glob("*.pid")]:
            old.unlink()
        self._folder = folder
        with (folder / "msrun.log").open("ab") as log:
            self._keeper = subprocess.Popen(
                kept(command), env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def poll(self) -> int | None:
        """Returns the launcher's exit code; None while it runs."""
        return self._keeper.poll()

    def tell_ranks(self, number: int) -> None:
        """Sends a signal to the ranks alone: it would end processes that do not expect it."""
        _send(self._named("rank*.pid"), number)

    def _named(self, files: str) -> list[psutil.Process]:
        pids = {int(file.read_text()) for file in self._folder.glob(files)}
        return [child for child in self._children() if child.pid in pids]

    def stop(self, grace: float, hurry: Callable[[], bool]) -> None:
        """Ends everything: SIGTERM, then SIGKILL after `grace` seconds, or as soon as `hurry` returns true."""
        schedulers = self._named("scheduler.pid")  # which ranks need while they save
        launcher, others = self._children()[:1], [each for each in self._children()[1:] if each not in schedulers]
        # Without it the launcher would kill the other ranks as soon as the first of them has ended.
        _send(launcher, signal.SIGSTOP)
        _send(others, signal.SIGTERM)
        end = time.monotonic() + grace
        while any(map(_lives, others)) and time.monotonic() < end and not hurry():
            late = [rank for rank in self._named("rank*.pid") if rank not in others]  # its worker was just starting
            _send(late, signal.SIGTERM)
            others += late
            time.sleep(_PAUSE)
        self._keeper.send_signal(END)  # and the keeper ends the rest
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_KILL_SECONDS)

    def _children(self) -> list[psutil.Process]:
        """Returns the launcher, followed by the processes that it started."""
        try:
            keeper = psutil.Process(self._keeper.pid)
            launcher = keeper.children()
            return [*launcher, *(child for child in keeper.children(recursive=True) if child not in launcher)]
        except psutil.NoSuchProcess:
            return []


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _send(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
