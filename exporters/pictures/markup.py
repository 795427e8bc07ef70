"""HTML and SVG as text: every text is escaped unless it is markup already."""

import html
import re
from collections.abc import Iterable
from datetime import datetime, timezone

_BAD = {code: f"\\x{code:02x}" for code in (*range(9), 11, 12, *range(14, 32), *range(127, 160))} | {
    code: f"\\u{code:04x}" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFFFE, 0xFFFF)
}
"""Control characters that are invalid in a page, and those that change the direction of writing to fake a text."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_LAST_SECOND = 253_402_300_799.0  # of the year 9999


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def text(content: str) -> Html:
    """Returns `content` as markup; an `Html` is returned unchanged."""
    if isinstance(content, Html):
        return content
    visible = _SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", content.translate(_BAD))
    return Html(html.escape(visible, quote=True))


def tag(element: str, /, *content: str | Iterable[str], **attributes: object) -> Html:
    """Returns an element.

    Args:
        element: Name of the element.
        *content: Texts, which are escaped, `Html`, which is not, or iterables of both.
        **attributes: A trailing underscore is dropped and the others become hyphens; None and False omit an attribute.
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
    """Returns a dotted name that may break after its dots; cut to `longest` characters."""
    return Html(text(content[:longest] + ("…" if len(content) > longest else "")).replace(".", ".<wbr/>"))


def number(value: float) -> str:
    """Returns a feature value or limit for people: four significant digits.

    >>> number(5e8)
    '5e8'
    """
    digits, sign, exponent = f"{value:.4g}".partition("e")
    return f"{digits}e{int(exponent)}" if sign else digits


def utc(seconds: float, *, digits: int = 0) -> str:
    """Returns a time in UTC in ISO 8601; `-` for 0 and for values out of range.

    >>> utc(1.25, digits=3)
    '1970-01-01T00:00:01.250Z'
    """
    if not 0 < seconds <= _LAST_SECOND:
        return "-"
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    spec = {0: "seconds", 3: "milliseconds"}[digits]
    return moment.isoformat(timespec=spec).replace("+00:00", "Z")
