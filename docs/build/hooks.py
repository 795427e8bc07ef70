"""What MkDocs does around the pages: figures and generated parts in each page, and the pages for programs.

Beside each page stands its Markdown, and `llms.txt` lists them; both say of which version they are.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import figures

import asd

_SENTENCE = re.compile(r"^[A-Z`*\[].*?[.:](?=\s)", re.MULTILINE | re.DOTALL)
_NO_TEXT = re.compile(r"^```.*?^```$|^[|#].*?$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_pages: dict[str, str] = {}
_about: list[str] = []
_MARK = re.compile(r"^<!-- (run|check|cluster|shape|with)\b.*? -->\n", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Refuses figures that are not what the results say."""
    for path in figures.documents():
        wrong = figures.differences(path.read_text(encoding="utf-8"))
        if wrong:
            raise SystemExit(f"{path.name} {wrong[0]}\n`python docs/build/figures.py` fills the figures in.")
    config.copyright = f"mindspore-asd {asd.__version__}"
    _about.append(config.site_description)  # of the first language, English
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Takes out the marks that only tests and programs need."""
    return _MARK.sub("", figures.without_markers(markdown))


def on_post_page(output: str, page: Any, config: Any, **_: Any) -> str:
    """Puts the page's Markdown beside it, and the page into `llms.txt`."""
    beside = Path(page.file.abs_dest_path).with_suffix(".md")
    beside.parent.mkdir(parents=True, exist_ok=True)
    beside.write_text(page.markdown, encoding="utf-8")
    place = beside.relative_to(config.site_dir).as_posix()
    if not place.startswith("zh/"):
        _pages[place] = f"- [{page.title}]({place}): {_first_sentence(page.markdown)}\n"
    return output


def on_post_build(config: Any, **_: Any) -> None:
    """Writes the list of the pages, for programs that read."""
    head = f"# {config.site_name} {asd.__version__}\n\n> {_about[0]}\n\n## Pages\n\n"
    Path(config.site_dir, "llms.txt").write_text(head + "".join(_pages.values()), encoding="utf-8")


def _first_sentence(markdown: str) -> str:
    """What a page begins with, on one line and without links."""
    found = _SENTENCE.search(_NO_TEXT.sub("", markdown))
    return _LINK.sub(r"\1", " ".join(found[0].split())) if found else ""
