"""The processes of one attempt: all of them are started together, and all of them are gone in the end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Launch", "Processes", "adopt_orphans", "descendants"]

_KEEPER = Path(__file__).with_name("keeper.py")
_SET_CHILD_SUBREAPER = 36
_PAUSE = 0.02
_KILL_SECONDS = 15.0


class Launch(NamedTuple):
    """What to start.

    Attributes:
        command: The launcher's command line.
        environ: Its whole environment.
        folder: Where its output goes, in `msrun.log`, and where the ranks leave how they ended.
    """

    command: Sequence[str]
    environ: Mapping[str, str]
    folder: Path


class Processes:
    """The launcher and everything it starts, in a session of their own."""

    def __init__(self, launch: Launch) -> None:
        launch.folder.mkdir(parents=True, exist_ok=True)
        for old in [*launch.folder.glob("rank*.exit"), *launch.folder.glob("rank*.pid")]:
            old.unlink()
        with (launch.folder / "msrun.log").open("ab") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid()), *launch.command],
                env=dict(launch.environ), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def poll(self) -> int | None:
        """The launcher's exit code; None while it runs."""
        return self._keeper.poll()

    def stop(self, grace: float, hurry: Callable[[], bool] = lambda: False) -> list[int]:
        """Ends everything: SIGTERM, and SIGKILL for what is left after `grace` seconds.

        Args:
            grace: Seconds.
            hurry: Whether not to wait any longer.

        Returns:
            Processes that did not even end on SIGKILL, as those waiting for a broken disk; mostly none.
        """
        launcher, others = self._members()
        # It would kill the other ranks as soon as the first of them has ended.
        _send([*launcher], signal.SIGSTOP)
        _send(others, signal.SIGTERM)
        end = time.monotonic() + grace
        while any(map(_lives, others)) and time.monotonic() < end and not hurry():
            time.sleep(_PAUSE)
        self._keeper.terminate()  # and the keeper ends the rest
        end = time.monotonic() + _KILL_SECONDS
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._keeper.wait(_KILL_SECONDS)
        while (left := self._left()) and time.monotonic() < end:
            _send(left, signal.SIGKILL)
            _reap()
            time.sleep(_PAUSE)
        _reap()
        return left

    def _members(self) -> tuple[list[int], list[int]]:
        """The launcher, and what it started."""
        below = descendants(self._keeper.pid)
        return below[:1], below[1:]

    def _left(self) -> list[int]:
        # Whatever the keeper left behind when it was killed is ours by now.
        return [pid for pid in descendants(os.getpid()) if _lives(pid)]


def adopt_orphans() -> None:
    """Makes this process the parent of every orphan among its descendants, so that none escapes."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(root: int) -> list[int]:
    """Every process below `root`, parents before their children."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _fields(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    todo = [root]
    while todo:
        below = sorted(children.get(todo.pop(0), []))
        found += below
        todo += below
    return found


def _fields(pid: int) -> list[str]:
    """The fields of `/proc/PID/stat` from the state on; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def _lives(pid: int) -> bool:
    fields = _fields(pid)
    return bool(fields) and fields[0] not in "ZX"


def _send(pids: Sequence[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
