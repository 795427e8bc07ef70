"""What a self-test found: as a table for people, as JSON, and in the form of OCP Test and Validation."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from typing import Any

from asd.rules.diagnosis.selftest import ABSENT, OK, WRONG, Finding

__all__ = ["as_json", "as_ocp", "as_table"]

_RED, _END = "\x1b[31m", "\x1b[0m"
_TYPES = ("float32", "float16", "bfloat16", "")
_OCP_VERSION = {"major": 2, "minor": 0}


def as_json(findings: Sequence[Finding], machine: Mapping[str, str | None]) -> dict[str, Any]:
    """One object with all there is to know."""
    return {
        "machine": dict(machine),
        "failed": any(each.state == WRONG for each in findings),
        "counts": {state: sum(each.state == state for each in findings) for state in (OK, WRONG, ABSENT)},
        "findings": [asdict(each) for each in findings],
    }


def as_table(findings: Sequence[Finding], machine: Mapping[str, str | None]) -> str:
    """A table of words, then the sentences: what is wrong, what is absent, what each check costs."""
    lines = [f"{name}: {value or 'not installed'}" for name, value in machine.items()]
    modes = list(dict.fromkeys(each.mode for each in findings))
    columns = [(mode, dtype) for mode in modes for dtype in _TYPES if _has(findings, mode, dtype)]
    rows: dict[str, dict[tuple[str, str], list[str]]] = {}
    for each in findings:
        if each.area != "cost":
            row = rows.setdefault(f"{each.area}: {each.name}", {})
            row.setdefault((each.mode, each.dtype), []).append(each.state)
    heads = [f"{mode} {dtype}".strip() for mode, dtype in columns]
    table = [["what", *heads]]
    for what, cells in rows.items():
        table.append([what, *(_word(cells.get(column, [])) for column in columns)])
    lines += ["", *_aligned(table)]
    lines += _section("Wrong", [each for each in findings if each.state == WRONG])
    lines += _section("Absent on this device, and not tested", [each for each in findings if each.state == ABSENT])
    costs = [each for each in findings if each.area == "cost" and each.state == OK]
    if costs:
        lines += ["", "What each takes here, of 512 x 512 float32, beside the same without it:"]
        lines += _aligned([[f"  {each.name}", each.mode, f"{each.microseconds:.0f} us"]
                           for each in costs])  # fmt: skip
    counts = as_json(findings, machine)["counts"]
    lines += ["", f"{counts[OK]} right, {counts[WRONG]} wrong, {counts[ABSENT]} absent."]
    return "\n".join(lines)


def _has(findings: Sequence[Finding], mode: str, dtype: str) -> bool:
    return any((each.mode, each.dtype) == (mode, dtype) and each.area != "cost" for each in findings)


def _word(states: list[str]) -> str:
    if not states:
        return "-"
    return "WRONG" if WRONG in states else OK if OK in states else ABSENT


def _aligned(table: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return [line.replace("WRONG", f"{_RED}WRONG{_END}") for line in lines] if coloured else lines


def _section(title: str, findings: Sequence[Finding]) -> list[str]:
    if not findings:
        return []
    lines = dict.fromkeys(f"  {_place(each)}: {each.detail}" for each in findings)
    return ["", f"{title}:", *lines]


def _place(each: Finding) -> str:
    rank = f"rank {each.rank}" if each.rank >= 0 else ""
    where = ", ".join(filter(None, (each.mode, each.dtype, rank)))
    return f"{each.area}: {each.name} ({where})"


def as_ocp(findings: Sequence[Finding], machine: Mapping[str, str | None]) -> Iterator[str]:
    """JSON lines by the OCP Test and Validation output specification, version 2.0: a step per area and mode."""
    for number, artifact in enumerate(_artifacts(findings, machine)):
        now = datetime.now(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")
        yield json.dumps({**artifact, "sequenceNumber": number, "timestamp": now})


def _artifacts(findings: Sequence[Finding], machine: Mapping[str, str | None]) -> Iterator[dict[str, Any]]:
    from asd import __version__

    yield {"schemaVersion": _OCP_VERSION}
    software = [
        {"softwareInfoId": str(i), "name": name, "version": value, "softwareType": "APPLICATION"}
        for i, (name, value) in enumerate(machine.items())
        if value and name not in ("host", "device")
    ]
    dut = {
        "dutInfoId": str(machine["host"]), "name": str(machine["host"]), "softwareInfos": software,
        "hardwareInfos": [{"hardwareInfoId": "0", "name": str(machine["device"])}],
    }  # fmt: skip
    start = {"name": "asd selftest", "version": __version__, "commandLine": " ".join(sys.argv), "parameters": {}}
    yield {"testRunArtifact": {"testRunStart": {**start, "dutInfo": dut}}}
    steps = list(dict.fromkeys((each.area, each.mode) for each in findings))
    for number, (area, mode) in enumerate(steps):
        step = {"testStepId": str(number)}
        yield {"testStepArtifact": {**step, "testStepStart": {"name": f"{area}, {mode}"}}}
        for each in findings:
            if (each.area, each.mode) == (area, mode):
                yield {"testStepArtifact": {**step, **_of_finding(each)}}
        yield {"testStepArtifact": {**step, "testStepEnd": {"status": "COMPLETE"}}}
    result = "FAIL" if any(each.state == WRONG for each in findings) else "PASS"
    yield {"testRunArtifact": {"testRunEnd": {"status": "COMPLETE", "result": result}}}


def _of_finding(each: Finding) -> dict[str, Any]:
    name = " ".join(filter(None, (each.name, each.dtype)))
    if each.area == "cost" and each.state == OK:
        return {"measurement": {"name": name, "value": each.microseconds, "unit": "us", "hardwareInfoId": "0"}}
    kind = {OK: "PASS", WRONG: "FAIL"}.get(each.state, "UNKNOWN")
    verdict = f"{each.area}-{each.state}".replace(" ", "-").replace("'", "")
    message = f"{_place(each)}: {each.detail or each.state}"
    return {"diagnosis": {"verdict": verdict, "type": kind, "message": message, "hardwareInfoId": "0"}}
