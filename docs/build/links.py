"""Checks every link of the built site and of the Markdown beside it: pages, parts of pages, pictures, files.

  python docs/build/links.py build/site

Links to other sites are not looked at: nothing here may depend on a network.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"(?<!\\)!?\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()

    def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {value for name in ("id", "name") if (value := found.get(name))}
        if link := found.get("href") or found.get("src"):
            self.links.append(link)


@cache
def _page(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def wrong_in_site(site: Path) -> Iterator[str]:
    """A sentence for each link of the site that leads nowhere."""
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":
            continue  # it is served from every folder
        for link in dict.fromkeys(_page(path).links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{path.relative_to(site)}: {link} leads to no file"
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in _page(target).places:
                yield f"{path.relative_to(site)}: {link} leads to no place of that page"


def wrong_in_checkout() -> Iterator[str]:
    """A sentence for each dead link in the Markdown at the top of the checkout, which is read where it is shown."""
    for path in sorted(ROOT.glob("*.md")):
        for link in _LINK.findall(_FENCE.sub("", path.read_text(encoding="utf-8"))):
            parts = urlsplit(link)
            if not (parts.scheme or parts.netloc) and parts.path and not (path.parent / unquote(parts.path)).exists():
                yield f"{path.name}: {link} leads to no file"


def main() -> int:
    """Checks all and returns 1 when something is wrong."""
    wrong = [*wrong_in_site(Path(sys.argv[1])), *wrong_in_checkout()]
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
