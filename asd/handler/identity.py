"""What tells jobs and devices apart."""

from __future__ import annotations

import re

from asd.event import Event

__all__ = ["device_key", "job_of", "names_device"]

_ATTEMPT = re.compile(r"\+[0-9]+\Z", re.ASCII)


def job_of(run: str) -> str:
    """The job that `run` is an attempt of: relaunches of `NAME` are called `NAME+2`, `NAME+3` and so on.

    >>> job_of("llama+2"), job_of("llama")
    ('llama', 'llama')
    """
    return _ATTEMPT.sub("", run)


def device_key(host: str, device: str, rank: int) -> tuple[str, str, int]:
    """What tells devices apart: an accelerator is the same in every run and under every rank."""
    kind, colon, _ = device.partition(":")
    shared = not colon or kind == "CPU"  # every process of a machine has the CPU:0
    return host, device, rank if shared else -1


def names_device(event: Event) -> bool:
    """Whether `event` says which device it is about; what nobody can name nobody can take out."""
    return bool(event.host) and event.device not in ("", "unknown")
