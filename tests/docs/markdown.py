"""Blocks of code in Markdown, with the marks that say what is to be done with each.

<!-- run -->          run it; `run: slow` does so in `make test-slow`, `run: part` lets it print more than is there
<!-- check -->        parse it only, for it takes long: what `sh` is by itself
<!-- cluster -->      parse it only, for it needs a cluster
<!-- with NAME -->    Python behind `programs/prelude_NAME.py`; `with file NAME` is a program that commands of pages run
"""

import re
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(
    r"(?P<marks>(?:^<!-- (?:run|check|cluster|with)\b[^\n]* -->\n)*)^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_GENERATED = re.compile(r"^<!-- generated: .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (\w+):?(.*?) -->")


class Block(NamedTuple):
    """A block, and where it stands."""

    path: Path
    line: int
    language: str
    marks: dict[str, str]
    text: str

    @property
    def place(self):
        return f"{self.path.name}:{self.line}"


def written(path):
    """A page without what a program made, which leaves empty lines."""
    return _GENERATED.sub(lambda match: "\n" * match[0].count("\n"), path.read_text(encoding="utf-8"))


def blocks(path):
    """The blocks of a page that people wrote."""
    page = written(path)
    for match in _FENCE.finditer(page):
        marks = {name: rest.strip() for name, rest in _MARK.findall(match["marks"])}
        line = page.count("\n", 0, match.start("language")) + 1
        yield Block(path, line, match["language"], marks, match["text"])


def prose(path):
    """A page without its blocks."""
    return _FENCE.sub("", written(path))
