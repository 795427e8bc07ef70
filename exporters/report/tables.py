"""Tables of a page, whose long ends are folded, and remarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asd.exporters.pictures.markup import Html, name, number, tag
from asd.exporters.report.words import counted


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        cells: Numbers, texts, None for a number that there is not, or a whole cell as `Html`.
        kind: Its class.
    """

    cells: Sequence[str | int | float | None]
    kind: str = ""


def table(
    heads: Sequence[str], rows: Sequence[Row], *, opened: int = 1000, noun: str = "row", left: int = 0
) -> list[Html]:
    """A table that scrolls by itself where it is wider than the page; nothing without rows.

    Args:
        heads: Of the columns.
        rows: All of them.
        opened: How many are shown at once; the others can be unfolded.
        noun: What a row is about.
        left: How many more there would be.
    """
    shown = [_table(heads, rows[:opened])] if rows else []
    folded = [_table(heads, rows[opened:])] if len(rows) > opened else []
    return [*shown, *fold(folded, len(rows) - opened, noun, left)]


def fold(content: Sequence[Html], count: int, noun: str, left: int) -> list[Html]:
    """What can be unfolded, with a line that says how much it is; `left` more are not in the page."""
    words = f"{counted(count, f'more {noun}')}{f' ({left:,} left out)' if left else ''}"
    return [tag("details", tag("summary", words), content)] if content else []


def note(words: str) -> list[Html]:
    """A remark in small print; nothing without words."""
    return [tag("p", words, class_="note")] if words else []


def _table(heads: Sequence[str], rows: Sequence[Row]) -> Html:
    numbers = [not isinstance(cell, str) for cell in rows[0].cells]
    titles = [
        tag("th", head, scope="col", class_="num" if numeric else None)
        for head, numeric in zip(heads, numbers, strict=True)
    ]
    body = [tag("tr", map(_cell, row.cells), class_=row.kind or None) for row in rows]
    content = tag("table", tag("thead", tag("tr", titles)), tag("tbody", body))
    return tag("div", content, class_="scroll", tabindex="0")


def _cell(content: str | float | None) -> Html:
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return tag("td", name(content), class_="name")
    if isinstance(content, int):
        return tag("td", f"{content:,}", class_="num" if content else "num nought")
    return tag("td", "-" if content is None else number(content), class_="num")
