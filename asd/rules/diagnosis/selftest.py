"""What one check of the self-test came to, as a child process tells it and the command line reads it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

OK, WRONG, ABSENT, BEGUN = "ok", "wrong", "absent", "begun"
"""States. `absent`: the device or MindSpore does not have what is tested. `begun`: it is being tested."""
_MARK = "ASD-SELFTEST "


@dataclass(frozen=True)
class Finding:
    """One check.

    Attributes:
        area: What kind of thing is tested, such as `statistics`.
        name: What exactly, such as `ReduceMax`.
        state: One of `OK`, `WRONG`, `ABSENT`, `BEGUN`.
        mode: `graph` or `pynative`.
        dtype: `float32`, `float16` or `bfloat16`; empty where it does not matter.
        detail: What was expected and what came, or why it is absent; empty where nothing is to be said.
    """

    area: str
    name: str
    state: str
    mode: str
    dtype: str = ""
    detail: str = ""


def line_of(finding: Finding) -> str:
    """The line by which a child tells it, among others that are none of ours."""
    return _MARK + json.dumps(asdict(finding))


def read_line(line: str) -> Finding | None:
    """What a line of a child tells; None for any other line."""
    _, mark, text = line.partition(_MARK)
    if not mark:
        return None
    try:
        return Finding(**json.loads(text))
    except (TypeError, ValueError):  # torn, where the child died in the middle of it
        return None
