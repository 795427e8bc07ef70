"""Result of one check of the self-test, as a child process prints it and the command line reads it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

OK, WRONG, ABSENT, BEGUN = "ok", "wrong", "absent", "begun"
"""States. `absent`: the device or MindSpore does not have what is tested. `begun`: it is being tested."""
_MARK = "ASD-SELFTEST "


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Attributes:
        area: Area of the check, such as `statistics`.
        name: Function under test, such as `ReduceMax`.
        state: One of `OK`, `WRONG`, `ABSENT`, `BEGUN`.
        mode: `graph` or `pynative`.
        dtype: `float32`, `float16` or `bfloat16`; empty where it does not matter.
        detail: Expected and actual value, or why it is absent; may be empty.
    """

    area: str
    name: str
    state: str
    mode: str
    dtype: str = ""
    detail: str = ""


def line_of(finding: Finding) -> str:
    """Returns the line that a child prints for a finding, recognizable among other output."""
    return _MARK + json.dumps(asdict(finding))


def read_line(line: str) -> Finding | None:
    """Returns the finding in a line of a child; None for any other line."""
    _, mark, text = line.partition(_MARK)
    if not mark:
        return None
    try:
        return Finding(**json.loads(text))
    except (TypeError, ValueError):  # torn, where the child died in the middle of it
        return None
