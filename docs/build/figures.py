"""Fills in the figures of README and of the documents, from `benchmarks/results`.

A figure stands between `<!-- =NAME -->` and `<!-- / -->`, a table between `<!-- table: NAME -->` and `<!-- end -->`. A
name that ends in `.zh` is the same in Chinese.

  python docs/build/figures.py            fill them in
  python docs/build/figures.py --check    only say which are not what the results say; exit code 1 if any
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import tables

ROOT = Path(__file__).resolve().parents[2]

_FIGURE = re.compile(r"(<!-- =(?P<name>[\w.]+) -->)(?P<old>.*?)(<!-- / -->)")
_MARKED = re.compile(
    r"<!-- =(?P<name>[\w.]+) -->.*?<!-- / -->|<!-- table: (?P<table>[\w.]+) -->\n.*?<!-- end -->", re.DOTALL
)
_TABLE = re.compile(r"(<!-- table: (?P<name>[\w.]+) -->\n)(?P<old>.*?)(<!-- end -->)", re.DOTALL)


def documents() -> Iterator[Path]:
    """README, CONTRIBUTING and every page, in all languages."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))


def filled(text: str) -> str:
    """`text` with what the results say between its markers.

    Raises:
        KeyError: A marker has a name that nothing is known about.
    """
    text = _FIGURE.sub(partial(_replace, one_of=tables.FIGURES), text)
    return _TABLE.sub(partial(_replace, one_of=tables.TABLES), text)


def differences(text: str) -> list[str]:
    """A sentence for each marker of `text` with something else behind it than the results say."""
    parts = zip(_MARKED.finditer(text), _MARKED.finditer(filled(text)), strict=True)
    return [
        f"line {text[: is_there.start()].count(chr(10)) + 1}: {is_there['name'] or is_there['table']} is not up to date"
        for is_there, right in parts
        if is_there[0] != right[0]
    ]


def without_markers(text: str) -> str:
    """`text` with the figures and without their markers, which a page does not need."""
    return _TABLE.sub(lambda match: match["old"], _FIGURE.sub(lambda match: match["old"], text))


def _replace(match: re.Match[str], one_of: dict[str, Callable[..., str]]) -> str:
    name, _, language = match["name"].partition(".")
    made = one_of[name](language) if language else one_of[name]()
    return match[1] + made + match[match.re.groups]


def main() -> int:
    """Fills in or checks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    wrong = 0
    for path in documents():
        text = path.read_text(encoding="utf-8")
        found = differences(text)
        for each in found:
            print(f"{path.relative_to(ROOT)} {each}")
        wrong += len(found)
        if found and not check:
            path.write_text(filled(text), encoding="utf-8")
    return 1 if check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
