"""What a benchmark has left, and how a number is written in a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results"


@cache
def _read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def result(name: str) -> Any:
    """Returns the result of a benchmark, without its commit and command."""
    return {key: value for key, value in _read(name).items() if key != "measured"}


def measured(name: str) -> dict[str, Any]:
    """The `commit` and the `command` of a result; of a sum, `parts` have the commands."""
    return _read(name).get("measured", _read(name))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def count(number: float) -> str:
    """A whole number for reading."""
    return f"{number:,.0f}"


def percent(share: float, digits: int = 0) -> str:
    """A share for reading."""
    return f"{100 * share:.{digits}f} %"


def met(is_met: object) -> str:
    """Whether a target is met."""
    return "yes" if is_met else "**no**"
