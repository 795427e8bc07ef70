"""Prepares texts for a terminal: escapes foreign texts, aligns rows."""

import shutil
import sys
import textwrap
from collections.abc import Sequence

_LEAST = 20  # characters of a column that is wrapped


def printable(text: str) -> str:
    r"""Returns `text` for one line: without line breaks and control sequences, which names may contain.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode()
        for letter in text
    )


def aligned(rows: Sequence[Sequence[str]], *, fits: bool = False) -> str:
    """Returns one line for each row; the first is mostly the head, and columns have two spaces between them.

    Args:
        rows: Cells of each row.
        fits: Whether the last column is wrapped to the width of a terminal; in a pipe lines are whole.

    >>> print(aligned([("name", "value"), ("a", "1")]))
    name  value
    a     1
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    left = sum(widths[:-1]) + 2 * len(widths[:-1])
    room = shutil.get_terminal_size().columns - left if fits and sys.stdout.isatty() else 0
    lines = []
    for *cells, last in rows:
        first, *rest = (textwrap.wrap(last, room) if room >= _LEAST else []) or [last]
        lines += ["  ".join([*map(str.ljust, cells, widths), first]), *(" " * left + more for more in rest)]
    return "\n".join(line.rstrip() for line in lines)
