"""Texts of devices and reasons as a scheduler stores them."""

import hashlib
import re
from collections.abc import Mapping
from urllib.parse import quote

from asd.event import CODE
from asd.isolator import Device

_LONGEST = 64
_CHIP = re.compile(r"(?!CPU:)[A-Za-z][A-Za-z0-9_-]*:([0-9]{1,4})", re.ASCII)
_PREFIX = "evt-"
_OURS = re.compile(r"ASD [0-9A-F]{8} (.+)", re.ASCII)
_MARK = re.compile(r"(\S+) (evt-\S+)", re.ASCII)


def label(device: Device) -> str:
    """Returns the name of `device` on its host: letters, digits and `:._~%-` only, at most 64 of them.

    >>> label(Device("n1", "Ascend:3", 5)), label(Device("n1", "a b", -1))
    ('Ascend:3', 'a%20b')
    """
    name = device.device
    written = quote(name, safe=":", errors="backslashreplace")
    if len(written) > _LONGEST:
        digest = hashlib.sha256(name.encode(errors="backslashreplace")).hexdigest()[:16]
        written = f"{written[: _LONGEST - len(digest) - 1]}-{digest}"
    return written


def chip(device: Device) -> int | None:
    """Returns the number of the chip; None when the name has no number.

    >>> chip(Device("n1", "Ascend:3", 5)), chip(Device("n1", "CPU:0", 5))
    (3, None)
    """
    found = _CHIP.fullmatch(device.device)
    return int(found.group(1)) if found else None


def event_mark(event_id: str) -> str:
    """Returns the event as in a reason: `evt-` and its id, at most 68 characters.

    >>> event_mark("573d6a3ad8e8c4dba6d5d1b0ff0c5b2e")
    'evt-573d6a3ad8e8c4dba6d5d1b0ff0c5b2e'
    """
    return _PREFIX + quote(event_id, safe="", errors="backslashreplace")[:_LONGEST]


def reason_for(marks: Mapping[str, str]) -> str:
    """Returns marks as a reason for people: the fault code, then each device with its event.

    >>> reason_for({"Ascend:3": "evt-42"})
    'ASD 80818C00 Ascend:3 evt-42'
    """
    return f"ASD {CODE} " + ", ".join(f"{device} {event}" for device, event in marks.items())


def marks_in(reason: str) -> dict[str, str]:
    """Returns the devices in a reason that we wrote, each with its event; empty if it is not ours.

    >>> marks_in("ASD 80818C00 Ascend:3 evt-42"), marks_in("a broken fan")
    ({'Ascend:3': 'evt-42'}, {})
    """
    ours = _OURS.fullmatch(reason)
    marks = [_MARK.fullmatch(part) for part in ours.group(1).split(", ")] if ours else []
    return {mark.group(1): mark.group(2) for mark in marks if mark} if all(marks) else {}


def plain(text: str, longest: int) -> str:
    r"""Returns `text` on one line without control characters, at most `longest` characters.

    >>> plain("two\nlines", 100)
    'two lines'
    """
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    return line if len(line) <= longest else f"{line[: longest - 3]}..."
