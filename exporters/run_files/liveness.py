"""Whether the process that wrote a status still lives."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from asd.rules.step.status import Status

__all__ = ["Liveness"]

_SLACK_SECONDS = 2.0  # /proc tells when the machine began in whole seconds


class Liveness:
    """Tells by the process number whether a training on this machine still runs.

    The agent must see the processes of the training: in containers, share the process namespace. Of a process on
    another machine, or one with another host name, it is believed what its status says.

    Args:
        host: Host name of this machine, or of this container.
        proc: Where the kernel tells about processes.
    """

    def __init__(self, host: str = "", proc: Path = Path("/proc")) -> None:
        self.host = host or socket.gethostname()
        self.proc = proc

    def __call__(self, status: Status) -> bool:
        """Whether the process of `status` lives, as far as it can be told."""
        if not self.sees(status):
            return True
        try:
            os.kill(status.pid, 0)
        except ProcessLookupError:
            return False
        except (PermissionError, OverflowError):
            pass
        return self._is_the_same(status)

    def sees(self, status: Status) -> bool:
        """Whether the process of `status` can be seen from here; what `host` says is a name that others gave."""
        return (status.machine or status.host) == self.host and status.pid > 0

    def _is_the_same(self, status: Status) -> bool:
        """Whether the process with that number is neither dead nor another one that got its number."""
        try:
            text = (self.proc / str(status.pid) / "stat").read_text(encoding="utf-8", errors="replace")
            state, *numbers = text.rpartition(")")[2].split()  # the name before may hold spaces and brackets
            began = int(numbers[18]) / os.sysconf("SC_CLK_TCK")
            boot = self._boot()
        except FileNotFoundError:
            return not (self.proc / "self").exists()  # it ended this moment, or there is no /proc
        except (OSError, ValueError, IndexError):
            return True
        # Compared with when the status was last written, not with when the training began: a running training writes
        # again and again, so a clock that is set forward does not make it look dead for long.
        return state not in {"Z", "X"} and boot + began <= max(status.written, status.started) + _SLACK_SECONDS

    def _boot(self) -> float:
        """When the machine began, in seconds since the epoch, by the clock as it is set now."""
        for line in (self.proc / "stat").read_text(encoding="ascii").splitlines():
            if line.startswith("btime "):
                return float(line.split()[1])
        raise ValueError("no btime")
