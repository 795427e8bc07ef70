"""Runs one rank for the launcher: sets its device, and keeps its exit code.

    worker.py FOLDER DEVICES COMMAND ...

The launcher kills all ranks as soon as one fails. This program outlives a failed rank until the supervisor has read the
exit code in `FOLDER/rank0.exit` and the other ranks had time to end by themselves. The rank dies with it, and it dies
with the launcher. It uses the standard library alone, since it runs in the Python of the training.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

END = signal.SIGRTMIN  # ends the keeper: schedulers send others to all processes of a job, before it has saved
_SET_PARENT_DEATH_SIGNAL = 1
_ALL = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2]  # and those that Python ignores by itself:
_ALL += [signal.SIGPIPE, signal.SIGXFSZ]
_LINGER_SECONDS = 120.0  # without a supervisor the launcher gets the failure after this time


def main(folder: Path, devices: list[str], command: list[str]) -> int:
    """Runs `command` as the rank given by the launcher; returns its exit code."""
    environ = os.environ  # noqa: TID251 - a program of its own: the launcher tells it nothing in any other way
    if environ.get("MS_ROLE") == "MS_SCHED":
        become(command, os.getppid(), ())  # if a signal ended it, the ranks would end 20 s later
    rank = int(environ.get("RANK_ID") or 0)
    environ["ASD_DEVICE"] = devices[rank]
    _die_with_parent()
    for number in (signal.SIGTERM, signal.SIGINT):  # schedulers send them to all: the others have not saved yet
        signal.signal(number, signal.SIG_IGN)
    here = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)  # until the rank does not ignore them as this program does
    child = os.fork()
    if child == 0:
        become(command, here)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ALL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = code if code >= 0 else 128 - code
    _keep(folder / f"rank{rank}.exit", str(code))
    end = time.monotonic() + _LINGER_SECONDS
    while code and time.monotonic() < end:
        time.sleep(0.1)
    return code


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def become(command: list[str], parent: int, hears: Iterable[int] = _ALL) -> NoReturn:
    """Runs `command` in the place of this process, which dies with its `parent` and `hears` signals that it ignored."""
    for number in hears:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, hears)
    _die_with_parent()
    if os.getppid() == parent:
        try:
            os.execvp(command[0], command)
        except OSError as error:
            sys.stderr.write(f"asd: {command[0]}: {error.strerror}.\n")
            sys.stderr.flush()
    os._exit(127)


def _keep(file: Path, text: str) -> None:
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2].split(","), sys.argv[3:]))
