"""HTML and SVG as text: whatever stands in a file is escaped unless it is markup already."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from datetime import datetime, timezone

_BAD = {code: f"\\x{code:02x}" for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160))} | {
    code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFFFE, 0xFFFF)
}
"""Control characters no page may hold, and those that turn the direction of writing and so could fake a text."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_LAST_SECOND = 253_402_300_799.0  # of the year 9999


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def text(content: str) -> Html:
    """`content` as markup; an `Html` stays what it is."""
    if isinstance(content, Html):
        return content
    visible = _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", content.translate(_BAD))
    return Html(html.escape(visible, quote=True))


def tag(element: str, /, *content: str | Iterable[str], **attributes: object) -> Html:
    """One element.

    Args:
        element: Its name.
        *content: Texts, which are escaped, `Html`, which is not, or iterables of both.
        **attributes: A trailing underscore is dropped and the others become hyphens; None and False leave one out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inside = "".join(
        text(part) if isinstance(part, str) else "".join(text(piece) for piece in part) for part in content
    )
    return Html(f"<{element}{given}>{inside}</{element}>" if content else f"<{element}{given}/>")


def name(content: str, longest: int = 200) -> Html:
    """A dotted name that may break after its dots; cut when it is longer than `longest` characters."""
    return Html(text(content[:longest] + ("…" if len(content) > longest else "")).replace(".", ".<wbr/>"))


def number(value: float) -> str:
    """A feature value or limit for people: four significant digits.

    >>> number(5e8)
    '5e8'
    """
    digits, sign, exponent = f"{value:.4g}".partition("e")
    return f"{digits}e{int(exponent)}" if sign else digits


def utc(seconds: float, *, digits: int = 0) -> str:
    """A time in UTC as ISO 8601 writes it; `-` for 0 and for what is no time.

    >>> utc(1.25, digits=3)
    '1970-01-01T00:00:01.250Z'
    """
    if not 0 < seconds <= _LAST_SECOND:
        return "-"
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    spec = {0: "seconds", 3: "milliseconds"}[digits]
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")
