"""Frame of a self-contained HTML page: it loads nothing and runs nothing."""

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from asd.exporters.pictures.chart import STYLE
from asd.exporters.pictures.markup import Html, tag, text

_PAGE_STYLE = Path(__file__).with_name("report.css")


def document(title: str, body: Sequence[Html]) -> str:
    """Returns a whole page.

    Args:
        title: Title of the window.
        body: Content, from top to bottom.
    """
    style = STYLE + _PAGE_STYLE.read_text(encoding="utf-8")
    # This holds even if a text of a file got around the escaping.
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{text(policy)}"/>'),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("style", Html(style)),
    )
    page = tag("html", head, "\n", tag("body", tag("main", body)), lang="en", xmlns="http://www.w3.org/1999/xhtml")
    return f"<!DOCTYPE html>\n{page}\n"
