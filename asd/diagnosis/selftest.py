"""Result of one check of the self-test, as a child process prints it and the command line reads it."""

import json
from dataclasses import asdict, dataclass

OK, WRONG, ABSENT, BEGUN = "ok", "wrong", "absent", "begun"
"""States. `absent`: the device or MindSpore does not have what is tested. `begun`: it is being tested."""
_MARK = "ASD-SELFTEST "


@dataclass(frozen=True)
class Finding:
    """Result of one check."""

    area: str  # area of the check, such as `statistics`
    name: str  # function under test, such as `ReduceMax`
    state: str  # one of `OK`, `WRONG`, `ABSENT`, `BEGUN`
    mode: str  # `graph` or `pynative`
    dtype: str = ""  # `float32`, `float16` or `bfloat16`; empty where it does not matter
    detail: str = ""  # expected and actual value, or why it is absent; may be empty


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
