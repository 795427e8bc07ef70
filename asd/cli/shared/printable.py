"""Prepares texts for a terminal: escapes foreign texts, aligns rows."""

from __future__ import annotations

from collections.abc import Sequence


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


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Returns one line for each row; the first is mostly the head, and columns have two spaces between them.

    >>> print(aligned([("name", "value"), ("a", "1")]))
    name  value
    a     1
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
