"""Tests whether the process that wrote a status still exists."""

import os
import socket

import psutil

from asd.judge.status import Status
from asd.origin import machine_name

_SLACK_SECONDS = 2.0  # a process' start is known in whole seconds only
_DEAD = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


class Liveness:
    """Test by process number whether a training on this machine still runs.

    The agent must see the processes of the training: in containers, share the process namespace and the host name. For
    a process on another machine, or in another namespace, its status is trusted.
    """

    def __init__(self) -> None:
        self._names = machine_name(), socket.gethostname()  # statuses of older versions have the host name alone

    def __call__(self, status: Status) -> bool:
        """Returns whether the process of `status` exists, as far as this machine can see; else True."""
        if not self.sees(status):
            return True
        try:
            process = psutil.Process(status.pid)
            with process.oneshot():
                state, began = process.status(), process.create_time()
        except psutil.NoSuchProcess:
            # A /proc that is mounted with hidepid hides processes of other users; a signal to them is refused.
            try:
                os.kill(status.pid, 0)
            except (OSError, OverflowError) as error:
                return isinstance(error, PermissionError)
            return False
        except (psutil.Error, OSError):  # it exists, and no more is known
            return True
        # Another process may have its number by now. Its start is compared with the last write of the status, not with
        # the start of the training: a running training writes often, so that a clock set forward makes it look dead
        # only briefly.
        return state not in _DEAD and began <= max(status.written, status.started) + _SLACK_SECONDS

    def sees(self, status: Status) -> bool:
        """Returns whether the process of `status` can be seen from here."""
        return (status.machine or status.host) in self._names and status.pid > 0
