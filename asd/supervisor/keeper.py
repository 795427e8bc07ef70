"""Keeper between the supervisor and the launcher: when either dies, it kills everything that was started.

    keeper.py PATHS SUPERVISOR_PID COMMAND ...

The keeper adopts orphans among its descendants. When the command ends, when the supervisor dies, or on `END`, it
kills everything that is left and exits with the exit code of the command. It is a separate program.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

if __name__ == "__main__":  # isolated, it does not know the folder of a user's own packages
    sys.path += sys.argv.pop(1).split(os.pathsep)

import psutil

from asd.supervisor.worker import END, become

_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_SECONDS = 10.0  # for processes that take long to die


def main(supervisor: int, command: list[str]) -> int:
    """Runs `command`; returns its exit code, or 128 plus the signal that ended it."""
    signal.signal(END, lambda *_: sys.exit())
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    control = ctypes.CDLL(None).prctl
    control(_SET_PARENT_DEATH_SIGNAL, END, 0, 0, 0)
    control(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.getppid() != supervisor:
        return 1  # it died before the kernel was told
    code = 128 + signal.SIGTERM
    here = os.getpid()
    try:
        child = os.fork()
        if child == 0:
            become(command, here)
        code = _wait_for(child)
    except SystemExit:  # by `END`
        pass
    signal.signal(END, signal.SIG_IGN)
    _end_the_rest()
    return code


def _wait_for(child: int) -> int:
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end_the_rest() -> None:
    """Kills all descendants until none is left: each may have started others."""
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
