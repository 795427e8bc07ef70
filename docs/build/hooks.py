"""What MkDocs does around the pages: figures and generated parts in each page.

A page writes `<!-- generated: NAME -->`, and what `generated.PARTS` makes of the name stands there in the site.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import figures
import generated

_DOCS = Path(__file__).resolve().parents[1]
_PART = re.compile(r"^<!-- generated: (.+?) -->$", re.MULTILINE)
_MARK = re.compile(r"^<!-- (run|check|cluster|shape|with)\b.*? -->\n", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Refuses figures that are not what the results say, and lists the zoo if it is there."""
    for path in figures.documents():
        wrong = figures.differences(path.read_text(encoding="utf-8"))
        if wrong:
            raise SystemExit(f"{path.name} {wrong[0]}\n`python docs/build/figures.py` fills the figures in.")
    if (_DOCS / "zoo.md").is_file():
        section = next(pages for entry in config.nav for name, pages in entry.items() if name == "Results")
        section.append({"The zoo": "zoo.md"})
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fills in what is generated, and takes out the marks that only tests need."""
    markdown = figures.without_markers(markdown)
    markdown = _PART.sub(lambda match: generated.PARTS[match[1]](), markdown)
    return _MARK.sub("", markdown)
