"""Identities of jobs, moments and devices."""

import re

from asd.event import Event
from asd.records import members

_ATTEMPT = re.compile(r"\+[0-9]+\Z", re.ASCII)


def job_of(run: str) -> str:
    """Returns the job of which `run` is an attempt: relaunches of `NAME` are called `NAME+2`, `NAME+3` and so on.

    >>> job_of("llama+2"), job_of("llama")
    ('llama', 'llama')
    """
    return _ATTEMPT.sub("", run)


def moment(event: Event) -> int:
    """Returns the step as the moment of `event`; 0 if its step is not a moment.

    Events from the vendor's logs have a key. Their step counts the checks since the start of one process, and many
    processes share a run: the same number is not the same moment.
    """
    return 0 if event.key else event.step


def names_device(event: Event) -> bool:
    """Returns whether `event` names its device; an unnamed device cannot be isolated."""
    return bool(event.host) and event.device not in ("", "unknown")


def whole(text: str) -> str:
    """Returns `text` without halves of surrogate pairs, which JSON can contain and a database cannot."""
    return text.encode(errors="replace").decode()


def whole_event(event: Event) -> Event:
    """Returns `event` with all its texts `whole`; nearly always the same object."""
    try:
        "".join(value for value in members(event).values() if isinstance(value, str)).encode()
    except UnicodeEncodeError:
        return Event.from_json(whole(event.to_json()))
    return event
