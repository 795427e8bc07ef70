"""What was to be reached; a missed target is reported as missed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.detection.detectors import WITH_SECOND_LOOK
from benchmarks.detection.measure import (
    CHECKSUMS,
    SAMPLED,
    WITH_CHECKSUM,
    Row,
    checks_of,
    controls,
    coverage,
    false_alarms,
    named,
    proportion,
)

__all__ = ["regressions", "targets_of"]

RESULTS = Path(__file__).resolve().parents[1] / "results"

LEAST = {"asd adaptive": 0.85, WITH_CHECKSUM: 0.95}
"""Share of the harmful single events, found in their own step, below which something broke. Not what was to be reached:
a subset has some 50 of them."""


def regressions(report: Row) -> list[str]:
    """What no change of the package may do to the figures of any split; empty if all is well."""
    found = []
    for name, least in LEAST.items():
        share = report["detectors"][name]["single"]["own_steps"]
        if share["of"] and share["share"] < least:
            found.append(f"{name} found {share['found']} of {share['of']} harmful single events; valid is {least:.0%}.")
    alarms = report["detectors"]["asd adaptive"]["false_alarms"]["normal_runs"]
    if alarms:
        found.append(f"{alarms} first-level alarms in trainings without fault and event; valid is none.")
    isolated = sum(row["isolations"] for row in report["controls"].values())
    if isolated:
        found.append(f"{isolated} isolations in trainings without a fault; valid is none.")
    if not report["clean_branches_bit_identical"]:
        found.append("a step made again without a fault had other bits; all of them must be the same.")
    return found


def targets_of(rows: list[Row], units: list[Row]) -> list[Row]:
    """What was to be reached, and what was measured."""
    single = [row for row in rows if row["harmful"] and row["duration"] == 1]
    lasting = [row for row in rows if row["harmful"] and row["duration"] > 1]
    targets = []
    for what, some, wanted, name in (
        ("single-event faults", single, 0.97, "asd adaptive"),
        ("single-event faults, with a second look,", single, 0.97, WITH_SECOND_LOOK),
        ("persistent faults", lasting, 0.99, "asd adaptive"),
        ("persistent faults, with a second look and sampled checksums,", lasting, 0.99, SAMPLED),
        ("persistent faults, with the checksum of every product,", lasting, 0.99, WITH_CHECKSUM),
    ):
        worst = coverage(name, some)["worst_stratum"]
        measured = (
            f"{worst['share']:.3f} in {worst['name']}, n = {worst['of']}" if worst else "no stratum is large enough"
        )
        met = worst is not None and worst["share"] >= wanted
        targets.append(_target(f"harmful {what} in their own steps, worst stratum", measured, f">= {wanted}", met))
    for dtype, wanted in (("float32", 0.995), ("bfloat16", 0.93)):
        some = [row for row in rows if row["dtype"] == dtype and row.get("checksum")]
        share = proportion(sum(row["found"][CHECKSUMS["variance"]]["error"] == 0 for row in some), len(some))
        measured = f"{share['share']:.3f}, n = {share['of']}"
        targets.append(
            _target(f"corrupted products, checksum, {dtype}", measured, f">= {wanted}", share["share"] >= wanted)
        )
    right = named(WITH_CHECKSUM, rows)
    for what, wanted in (("rank", 0.995), ("operator", 0.99)):
        measured = f"{right[what]['share']:.3f}, n = {right[what]['of']}"
        targets.append(
            _target(f"right {what} named, with checksum", measured, f">= {wanted}", right[what]["share"] >= wanted)
        )
    alarms = false_alarms("asd adaptive", units)["first_later"]
    checks = checks_of(units, "warm_up") + checks_of(units, "later")
    few = alarms[0] <= 1 and checks >= 3_000_000
    measured = f"{alarms[0]:.2f}, at most {alarms[1]:.2f}"
    targets.append(_target("first-level false alarms per million checks", measured, "<= 1 in 3 million", few))
    stress = list(controls([unit for unit in units if unit["unit"]["control"]]).values())
    isolated, unproven = (
        sum(row["isolations"] for row in stress),
        sum(row["steps"] - row["steps_replayed"] for row in stress),
    )
    measured = f"{isolated}; {unproven} of {sum(row['steps'] for row in stress)} flagged steps were not replayed"
    targets.append(
        _target(
            "isolations in negative controls after replay", measured, "0", bool(stress) and isolated == unproven == 0
        )
    )
    targets.extend(_step_times())
    targets.append(_target("clean checks", str(checks), ">= 3000000", checks >= 3_000_000))
    targets.append(_target("injections that changed something", str(len(rows)), ">= 3000", len(rows) >= 3000))
    return targets


def _step_times() -> list[Row]:
    """What the benchmarks of cost measured of the larger Llama in graph mode; what they did not measure is missed."""
    steps = _measured("overhead.json").get("steps", {})
    tiers = steps.get("large, graph, tiers", {}).get("ratio", {}).get("median")
    checksums = _measured("checksum.json")
    sampled = {
        part: next((row["ratio"]["median"] for row in rows if row["mode"] == "graph" and row["every"] == 16), None)
        for part, rows in checksums.items()
        if part in ("cost", "norms")
    }
    return [
        _target(
            f"step time with {what}, larger Llama",
            "not measured" if ratio is None else f"{ratio:.3f}",
            f"<= {most}",
            ratio is not None and ratio <= most,
        )
        for what, ratio, most in (
            ("the default tiers", tiers, 1.02),
            ("the checksum of each 16th product", sampled.get("cost"), 1.03),
            ("the checksum of each 16th product and norm, norms of one operator", sampled.get("norms"), 1.03),
        )
    ]


def _measured(name: str) -> dict[str, Any]:
    path = RESULTS / name
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _target(name: str, measured: str, wanted: str, met: bool) -> Row:
    return {"name": name, "measured": measured, "wanted": wanted, "met": bool(met)}
