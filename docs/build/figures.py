"""Fills in what README and the documents take from `benchmarks/results` and from the code.

A table of results stands between `<!-- table: NAME -->` and `<!-- end -->`, a part of the code's between
`<!-- generated: NAME -->` and the same end; a name that ends in `.zh` is the same in Chinese.

  python docs/build/figures.py            fill them in
  python docs/build/figures.py --check    only say which are not up to date; exit code 1 if any
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import generated
import tables

ROOT = Path(__file__).resolve().parents[2]

TABLE = re.compile(r"(<!-- (?P<kind>table|generated): (?P<name>[\w. ]+) -->\n)(?P<old>.*?)(<!-- end -->)", re.DOTALL)


def documents() -> Iterator[Path]:
    """README, CONTRIBUTING and every page, in all languages."""
    yield from sorted(ROOT.glob("*.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))


def filled(text: str) -> str:
    """`text` with what the results say between its markers.

    Raises:
        KeyError: A marker has a name that nothing is known about.
    """
    return TABLE.sub(lambda match: match[1] + _made(match) + match[5], text)


def differences(text: str) -> list[str]:
    """A sentence for each marker of `text` with something else behind it than the results say."""
    return [
        f"line {text[: match.start()].count(chr(10)) + 1}: {match['name']} is not up to date"
        for match in TABLE.finditer(text)
        if match["old"] != _made(match)
    ]


def without_markers(text: str) -> str:
    """`text` with the tables and without their markers, which a page does not need."""
    return TABLE.sub(lambda match: match["old"], text)


def _made(match: re.Match[str]) -> str:
    if match["kind"] == "generated":
        return generated.PARTS[match["name"]]()
    table, _, language = match["name"].partition(".")
    try:
        return tables.TABLES[table](language) if language else tables.TABLES[table]()
    except tables.NoHistoryError:  # without git what stands there stays
        return match["old"]


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
