"""Result of a self-test as a text for people, and as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from asd.diagnosis.selftest import ABSENT, OK, WRONG, Finding


def as_json(findings: Sequence[Finding], machine: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns one object with all results."""
    return {
        "machine": dict(machine),
        "failed": any(each.state == WRONG for each in findings),
        "counts": {state: sum(each.state == state for each in findings) for state in (OK, WRONG, ABSENT)},
        "findings": [asdict(each) for each in findings],
    }


def as_text(findings: Sequence[Finding], machine: Mapping[str, str | None]) -> str:
    """Returns the number of right checks, followed by the wrong and the absent ones in sentences."""
    lines = [f"{name}: {value or 'not installed'}" for name, value in machine.items()]
    right = Counter(each.area for each in findings if each.state == OK)
    lines += ["", "Right:", *(f"  {area}: {count} checks" for area, count in right.items())]
    lines += _section("Wrong", [each for each in findings if each.state == WRONG])
    lines += _section("Absent on this device, and not tested", [each for each in findings if each.state == ABSENT])
    counts = as_json(findings, machine)["counts"]
    lines += ["", f"{counts[OK]} right, {counts[WRONG]} wrong, {counts[ABSENT]} absent."]
    return "\n".join(lines)


def _section(title: str, findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    lines = dict.fromkeys(f"  {_place(each)}: {each.detail}" for each in findings)
    return ["", f"{title}:", *lines]


def _place(each: Finding) -> str:
    where = ", ".join(filter(None, (each.mode, each.dtype)))
    return f"{each.area}: {each.name} ({where})"
