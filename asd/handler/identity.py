"""What tells jobs and devices apart."""

from __future__ import annotations

import re

from asd.event import Event
from asd.records import members

_ATTEMPT = re.compile(r"\+[0-9]+\Z", re.ASCII)


def job_of(run: str) -> str:
    """The job that `run` is an attempt of: relaunches of `NAME` are called `NAME+2`, `NAME+3` and so on.

    >>> job_of("llama+2"), job_of("llama")
    ('llama', 'llama')
    """
    return _ATTEMPT.sub("", run)


def moment(event: Event) -> int:
    """The step that tells when `event` was; 0 when none does.

    What was read from the vendor's logs has a key, and its step counts the checks since the start of one process, of
    which many share a run: the same number is not the same moment.
    """
    return 0 if event.key else event.step


def names_device(event: Event) -> bool:
    """Whether `event` says which device it is about; what nobody can name nobody can take out."""
    return bool(event.host) and event.device not in ("", "unknown")


def whole(text: str) -> str:
    """`text` without halves of surrogate pairs, which JSON can spell and a database can't keep."""
    return text.encode(errors="replace").decode()


def whole_event(event: Event) -> Event:
    """`event` with all its texts `whole`; nearly always the very same."""
    try:
        "".join(value for value in members(event).values() if isinstance(value, str)).encode()
    except UnicodeEncodeError:
        return Event.from_json(whole(event.to_json()))
    return event
