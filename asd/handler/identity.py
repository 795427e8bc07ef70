"""What tells jobs and devices apart."""

from __future__ import annotations

import re

from asd.event import Event
from asd.strikes import device_key

__all__ = ["device_key", "job_of", "names_device"]

_ATTEMPT = re.compile(r"\+[0-9]+\Z", re.ASCII)


def job_of(run: str) -> str:
    """The job that `run` is an attempt of: relaunches of `NAME` are called `NAME+2`, `NAME+3` and so on.

    >>> job_of("llama+2"), job_of("llama")
    ('llama', 'llama')
    """
    return _ATTEMPT.sub("", run)


def names_device(event: Event) -> bool:
    """Whether `event` says which device it is about; what nobody can name nobody can take out."""
    return bool(event.host) and event.device not in ("", "unknown")
