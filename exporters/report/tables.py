"""Tables of a page with folded ends, and remarks."""

from collections.abc import Sequence
from typing import NamedTuple

from asd.errors import how_many
from asd.exporters.pictures.markup import Html, name, number, tag


class Row(NamedTuple):
    """Row of a table."""

    cells: Sequence[str | int | float | None]  # numbers, texts, None for a missing number, or a whole cell as `Html`
    kind: str = ""  # CSS class


def table(
    heads: Sequence[str], rows: Sequence[Row], *, opened: int = 1000, noun: str = "row", left: int = 0
) -> list[Html]:
    """Returns a table that scrolls by itself if it is wider than the page; empty without rows.

    Args:
        heads: Heads of the columns.
        rows: All of them.
        opened: Number of rows shown at once; the others can be unfolded.
        noun: Word for what a row describes.
        left: Number of further rows that are left out.
    """
    shown = [_table(heads, rows[:opened])] if rows else []
    return [*shown, *fold([_table(heads, rows[opened:])] if len(rows) > opened else [], len(rows) - opened, noun, left)]


def fold(content: Sequence[Html], count: int, noun: str, left: int) -> list[Html]:
    """Returns content that can be unfolded, with its size in a line; `left` more are not in the page."""
    words = f"{how_many(count, f'more {noun}')}{f' ({left:,} left out)' if left else ''}"
    return [tag("details", tag("summary", words), content)] if content else []


def note(words: str) -> list[Html]:
    """Returns a remark in small print; empty without words."""
    return [tag("p", words, class_="note")] if words else []


def _table(heads: Sequence[str], rows: Sequence[Row]) -> Html:
    numbers = [not isinstance(cell, str) for cell in rows[0].cells]
    titles = [
        tag("th", head, scope="col", class_="num" if numeric else None)
        for head, numeric in zip(heads, numbers, strict=True)
    ]
    body = [tag("tr", map(_cell, row.cells), class_=row.kind or None) for row in rows]
    return tag("div", tag("table", tag("thead", tag("tr", titles)), tag("tbody", body)), class_="scroll", tabindex="0")


def _cell(content: str | float | None) -> Html:
    if isinstance(content, Html):
        return content
    if isinstance(content, str):
        return tag("td", name(content), class_="name")
    if isinstance(content, int):
        return tag("td", f"{content:,}", class_="num" if content else "num nought")
    return tag("td", "-" if content is None else number(content), class_="num")
