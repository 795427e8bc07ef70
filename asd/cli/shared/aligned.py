"""Aligns rows for a terminal."""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

_LEAST = 12  # characters of a column that is wrapped


def aligned(rows: Sequence[Sequence[str]], *, fits: bool = False) -> str:
    """Returns one line for each row; the first is mostly the head, and columns have two spaces between them.

    Args:
        rows: Cells of each row.
        fits: Whether wide columns are wrapped to the width of a terminal; in a pipe lines are whole.

    >>> print(aligned([("name", "value"), ("a", "1")]))
    name  value
    a     1
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    room = shutil.get_terminal_size().columns - 2 * len(widths) + 2
    while fits and sys.stdout.isatty() and sum(widths) > room and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    lines = (line for row in rows for line in zip_longest(*map(_wrapped, row, widths), fillvalue=""))
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _wrapped(cell: str, width: int) -> list[str]:
    return textwrap.wrap(cell, width) if len(cell) > width else [cell]
