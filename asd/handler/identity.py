"""What tells jobs and devices apart."""

from __future__ import annotations

import re
from dataclasses import replace

from asd.counts.strikes import device_key
from asd.event import Event

__all__ = ["device_key", "job_of", "names_device", "printable"]

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


def printable(event: Event) -> Event:
    """`event` without half surrogate pairs, which JSON can spell and a database can't keep."""
    texts = {name: getattr(event, name) for name in ("run", "host", "device", "checkpoint", "evidence", "reason")}
    return replace(event, **{name: text.encode(errors="replace").decode() for name, text in texts.items()})
