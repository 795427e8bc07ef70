"""What a self-test found: as a table for people, and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from asd.cli.shared.printable import aligned
from asd.rules.diagnosis.selftest import ABSENT, OK, WRONG, Finding

__all__ = ["as_json", "as_table"]

_TYPES = ("float32", "float16", "bfloat16", "")


def as_json(findings: Sequence[Finding], machine: Mapping[str, str | None]) -> dict[str, Any]:
    """One object with all there is to know."""
    return {
        "machine": dict(machine),
        "failed": any(each.state == WRONG for each in findings),
        "counts": {state: sum(each.state == state for each in findings) for state in (OK, WRONG, ABSENT)},
        "findings": [asdict(each) for each in findings],
    }


def as_table(findings: Sequence[Finding], machine: Mapping[str, str | None]) -> str:
    """A table of words, then the sentences: what is wrong, what is absent."""
    lines = [f"{name}: {value or 'not installed'}" for name, value in machine.items()]
    modes = list(dict.fromkeys(each.mode for each in findings))
    columns = [(mode, dtype) for mode in modes for dtype in _TYPES if _has(findings, mode, dtype)]
    rows: dict[str, dict[tuple[str, str], list[str]]] = {}
    for each in findings:
        row = rows.setdefault(f"{each.area}: {each.name}", {})
        row.setdefault((each.mode, each.dtype), []).append(each.state)
    heads = [f"{mode} {dtype}".strip() for mode, dtype in columns]
    table = [["what", *heads]]
    for what, cells in rows.items():
        table.append([what, *(_word(cells.get(column, [])) for column in columns)])
    lines += ["", aligned(table)]
    lines += _section("Wrong", [each for each in findings if each.state == WRONG])
    lines += _section("Absent on this device, and not tested", [each for each in findings if each.state == ABSENT])
    counts = as_json(findings, machine)["counts"]
    lines += ["", f"{counts[OK]} right, {counts[WRONG]} wrong, {counts[ABSENT]} absent."]
    return "\n".join(lines)


def _has(findings: Sequence[Finding], mode: str, dtype: str) -> bool:
    return any((each.mode, each.dtype) == (mode, dtype) for each in findings)


def _word(states: list[str]) -> str:
    if not states:
        return "-"
    return "WRONG" if WRONG in states else OK if OK in states else ABSENT


def _section(title: str, findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    lines = dict.fromkeys(f"  {_place(each)}: {each.detail}" for each in findings)
    return ["", f"{title}:", *lines]


def _place(each: Finding) -> str:
    rank = f"rank {each.rank}" if each.rank >= 0 else ""
    where = ", ".join(filter(None, (each.mode, each.dtype, rank)))
    return f"{each.area}: {each.name} ({where})"
