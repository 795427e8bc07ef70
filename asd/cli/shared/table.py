"""Rows as aligned lines."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["aligned"]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """One line for each row, the first of which is mostly the head; columns have two spaces between them.

    >>> print(aligned([("name", "value"), ("a", "1")]))
    name  value
    a     1
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
