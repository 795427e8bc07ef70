"""Texts for a terminal: those of others made harmless, rows made into aligned lines."""

from __future__ import annotations

from collections.abc import Sequence


def printable(text: str) -> str:
    r"""`text` for one line: no line break in a name may break a line, and no control sequence may reach a terminal.

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
    """One line for each row, the first of which is mostly the head; columns have two spaces between them.

    >>> print(aligned([("name", "value"), ("a", "1")]))
    name  value
    a     1
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
