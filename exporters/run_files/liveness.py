"""Whether the process that wrote a status still lives."""

from __future__ import annotations

import socket

import psutil

from asd.rules.step.status import Status

_SLACK_SECONDS = 2.0  # a process' start is known in whole seconds only
_DEAD = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


class Liveness:
    """Says by the process number whether a training on this machine still runs.

    The agent must see the processes of the training: in containers, share the process namespace. Of a process on
    another machine, or one with another host name, it is believed what its status says.

    Args:
        host: Host name of this machine, or of this container.
    """

    def __init__(self, host: str = "") -> None:
        self.host = host or socket.gethostname()

    def __call__(self, status: Status) -> bool:
        """Whether the process of `status` lives, as far as it can be told."""
        if not self.sees(status):
            return True
        try:
            process = psutil.Process(status.pid)
            with process.oneshot():
                state, began = process.status(), process.create_time()
        except psutil.NoSuchProcess:
            return False
        except (psutil.Error, OSError):  # it is there, and nothing more is said
            return True
        # Another process may have got its number. Its start is compared with when the status was last written, not with
        # when the training began: a running training writes again and again, so a clock that is set forward does not
        # make it look dead for long.
        return state not in _DEAD and began <= max(status.written, status.started) + _SLACK_SECONDS

    def sees(self, status: Status) -> bool:
        """Whether the process of `status` can be seen from here; what `host` says is a name that others gave."""
        return (status.machine or status.host) == self.host and status.pid > 0
