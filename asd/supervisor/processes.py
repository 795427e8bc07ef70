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
    return [sys.executable, "-I", str(_KEEPER), os.pathsep.join(filter(None, sys.path)), str(os.getpid()), *words]


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
        for old in folder.glob("rank*.exit"):
            old.unlink()
        with (folder / "msrun.log").open("ab") as log:
            self._keeper = psutil.Popen(
                kept(command), env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def poll(self) -> int | None:
        """Returns the launcher's exit code; None while it runs."""
        code: int | None = self._keeper.poll()
        return code

    def tell_ranks(self, number: int) -> None:
        """Sends a signal to the ranks alone: it would end processes that do not expect it."""
        _send(_below(_below(self._launcher())), number)

    def stop(self, grace: float, hurry: Callable[[], bool]) -> None:
        """Ends everything: SIGTERM, then SIGKILL after `grace` seconds, or as soon as `hurry` returns true."""
        # Without it the launcher would kill the other ranks as soon as the first of them has ended.
        _send(launcher := self._launcher(), signal.SIGSTOP)
        others = [*launcher, *(started := _below(launcher))]  # the parents of ranks, and the scheduler that these need
        for each in started:
            with contextlib.suppress(psutil.Error):
                others += _below([each], whole=True) if str(_WORKER) not in each.cmdline() else []
        ranks = [each for each in _below([self._keeper], whole=True) if each not in others]
        _send(ranks, signal.SIGTERM)
        end = time.monotonic() + grace
        while any(map(_lives, ranks)) and time.monotonic() < end and not hurry():
            time.sleep(_PAUSE)
        _send([self._keeper], END)  # and the keeper ends the rest
        with contextlib.suppress(psutil.TimeoutExpired):
            self._keeper.wait(_KILL_SECONDS)

    def _launcher(self) -> list[psutil.Process]:
        """Returns the launcher, if it lives: younger children of the keeper are orphans that it has adopted."""
        return sorted(_below([self._keeper]), key=psutil.Process.create_time)[:1]


def _below(processes: Sequence[psutil.Process], *, whole: bool = False) -> list[psutil.Process]:
    """Returns what processes have started; with `whole` also what that has started, and so on."""
    found = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found += process.children(recursive=whole)
    return found


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def _send(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
