"""From scores to tables and JSON: every proportion with its Wilson interval, the worst stratum beside each pool."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from asd.statefile import write_whole
from benchmarks.detection.detectors import COMPOSITES, DETECTORS
from benchmarks.detection.wilson import per_million, wilson

__all__ = ["make_report", "print_report", "write_report"]

WITHIN = (0, 1, 5, 20)
SMALLEST_STRATUM = 5
"""Strata with fewer harmful faults are listed, but never called the worst."""
STATE_TARGETS = ("weight", "m", "v", "master")
CHECKSUMS = {"variance": "asd checksum", "mindspore": "MindSpore checksum", "torch": "torch_npu checksum"}
WITH_CHECKSUM, REPLAY = "asd adaptive + checksum", "full replay"
"""The checksum of every product beside the tiers, and every computation done twice on another device."""
Row = dict[str, Any]


def make_report(units: list[Row], split: str, seed: int, missing: int) -> Row:
    """Everything the benchmark says, ready for JSON."""
    rows = [row for unit in units for row in _rows(unit)]
    real = [row for row in rows if not row["no_op"]]
    names = [*COMPOSITES, *DETECTORS, *CHECKSUMS.values(), WITH_CHECKSUM, REPLAY]
    return {
        "benchmark": "detection",
        "split": split,
        "seed": seed,
        "versions": _versions(),
        "trainings": len(units),
        "trainings_missing": missing,
        "injections": len(rows),
        "no_ops_removed": len(rows) - len(real),
        "harmful": sum(row["harmful"] for row in real),
        "clean_branches_bit_identical": all(unit["bit_identical"] for unit in units),
        "chaos_floor": _chaos(real),
        "clean_checks": _sum(units, "warm_up") + _sum(units, "later"),
        "detectors": {name: _detector(name, real, units) for name in names},
        "checksum_on_clean_products": {
            key: sum(unit["checksums"].get(key, 0) for unit in units) for key in ("products", *CHECKSUMS)
        },
        "harm_by_stratum": _harm(real),
        "confusion": _confusion(real),
        "controls": _controls(units),
        "targets": _targets(real, units),
    }


def print_report(report: Row) -> None:
    """The tables."""
    print(
        f"{report['injections']} injections, {report['no_ops_removed']} of them changed nothing and are left out; "
        f"{report['harmful']} harmful; {report['clean_checks']} clean checks in {report['trainings']} trainings"
        + (f" ({report['trainings_missing']} trainings are missing)" if report["trainings_missing"] else "")
        + f"; clean branches bit-identical: {report['clean_branches_bit_identical']}."
    )
    print(
        "\nharmful faults found, single events | persistent (3 steps and more); worst stratum; false alarms per million"
    )
    head = (
        f"{'detector':<32} {'own step':>20} {'worst':>7} {'in 20':>7} | {'own step':>20} {'worst':>7} {'in 20':>7} | "
    )
    print(head + f"{'all':>6} {'first level':>17} {'second':>9}")
    for name, row in report["detectors"].items():
        parts = [_cells(row[group]) for group in ("single", "persistent")]
        alarms = row["false_alarms"]
        tail = f"{alarms['first_later'][0]:>8.1f} <={alarms['first_later'][1]:>6.1f} {alarms['second_later'][0]:>9.1f}"
        print(f"{name:<32} {parts[0]} | {parts[1]} | {_percent(row['all_changes'])} {tail}")
    print("\ntargets")
    for target in report["targets"]:
        print(
            f"  {'met   ' if target['met'] else 'MISSED'} {target['name']}: {target['measured']} ({target['wanted']})"
        )


def write_report(report: Row, path: Path) -> None:
    """Writes the JSON, whole or not at all."""
    write_whole(path, json.dumps(report, indent=1, allow_nan=False, default=float) + "\n")


def _rows(unit: Row) -> Iterable[Row]:
    """One flat row for each fault."""
    facts = unit["unit"]
    for fault in unit["faults"]:
        row = {**fault, "family": facts["family"], "dtype": "bfloat16" if facts["rounded"] else "float32"}
        row |= {"ranks": facts["ranks"], "harmful": fault.get("harmful", False)}
        place = unit["places"][fault["place"]] if fault["target"] == "site" else None
        row["site"] = place["kind"] if place else fault["target"]
        row["operator"] = place["operator"] if place else ""
        row["operators"] = [p["operator"] for p in unit["places"]]
        if not fault["no_op"]:
            _add_computed(row)
        yield row


def _add_computed(row: Row) -> None:
    """What checksums and replays found, which need no history."""
    sums = row.get("checksum")
    for key, name in CHECKSUMS.items():
        hit = bool(sums and sums.get(key))
        row["found"][name] = _hit(row, hit)
    tiers = row["found"]["asd adaptive"]
    row["found"][WITH_CHECKSUM] = row["found"][CHECKSUMS["variance"]] if sums and sums.get("variance") else tiers
    row["found"][REPLAY] = _hit(row, row["target"] == "site")


def _hit(row: Row, hit: bool) -> Row:
    if not hit:
        return {"error": -1, "warning": -1}
    return {"error": 0, "warning": -1, "rank": row["rank"], "place": row["place"], "cause": "hardware", "matched": True}


def _detector(name: str, rows: list[Row], units: list[Row]) -> Row:
    harmful = [row for row in rows if row["harmful"]]
    single = [row for row in harmful if row["duration"] == 1]
    lasting = [row for row in harmful if row["duration"] > 1]
    steps = sorted(row["found"][name]["error"] for row in harmful if row["found"][name]["error"] >= 0)
    return {
        "single": _coverage(name, single),
        "persistent": _coverage(name, lasting),
        "all_changes": _share(sum(_in_time(row, name) for row in rows), len(rows)),
        "steps_to_detect": {"median": median(steps), "p95": _p95(steps), "n": len(steps)} if steps else {"n": 0},
        "named": _named(name, rows),
        "false_alarms": _false_alarms(name, units),
        "second_level_harmful": _share(sum(row["found"][name]["warning"] >= 0 for row in harmful), len(harmful)),
    }


def _coverage(name: str, rows: list[Row]) -> Row:
    """Within so many steps; a lasting fault is in time when it is found while it lasts."""
    strata = _by_stratum(rows, lambda some: _share(sum(_in_time(row, name) for row in some), len(some)))
    judged = {key: value for key, value in strata.items() if value["of"] >= SMALLEST_STRATUM}
    worst = min(judged, key=lambda key: (judged[key]["share"], judged[key]["low"]), default=None)
    within = {
        str(k): _share(sum(0 <= row["found"][name]["error"] <= k for row in rows), len(rows)) for k in WITHIN
    }  # fmt: skip
    return {
        "own_steps": _share(sum(_in_time(row, name) for row in rows), len(rows)),
        "within": within,
        "worst_stratum": {"name": worst, **judged[worst]} if worst is not None else None,
        "strata": strata,
    }


def _in_time(row: Row, name: str) -> bool:
    return 0 <= row["found"][name]["error"] < row["duration"]


def _by_stratum(rows: list[Row], measure: Callable[[list[Row]], Row]) -> Row:
    """The measure in every stratum of every axis, and of dtype and site together."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        for axis in ("family", "dtype", "ranks", "phase", "pattern", "site"):
            groups.setdefault(f"{axis} {row[axis]}", []).append(row)
        groups.setdefault(f"{row['dtype']}, {row['site']}", []).append(row)
    return {key: measure(groups[key]) for key in sorted(groups)}


def _named(name: str, rows: list[Row]) -> Row:
    """Of faults in computed tensors that were found in time: was the right rank, the right operator named?"""
    found = [row for row in rows if row["target"] == "site" and _in_time(row, name)]
    many = [row for row in found if row["ranks"] > 2]
    right = sum(row["found"][name].get("rank") == row["rank"] for row in many)
    operator = sum(_operator(row, name) == row["operator"] for row in found)
    return {"rank": _share(right, len(many)), "operator": _share(operator, len(found))}


def _operator(row: Row, name: str) -> str | None:
    place = row["found"][name].get("place", -1)
    return row["operators"][place] if place >= 0 else None


def _false_alarms(name: str, units: list[Row]) -> Row:
    if name == WITH_CHECKSUM:
        name = "asd adaptive"
    if name not in {*DETECTORS, *COMPOSITES}:
        key = next((key for key, shown in CHECKSUMS.items() if shown == name), None)
        products = sum(unit["checksums"]["products"] for unit in units)
        first = sum(unit["checksums"].get(key, 0) for unit in units) if key else 0
        rate = per_million(first, products) if products else (0.0, 1e9)
        return {"first_later": rate, "second_later": (0.0, rate[1]), "first_warm_up": rate, "checks": products}
    later, early = _sum(units, "later"), _sum(units, "warm_up")
    return {
        "first_later": per_million(_alarms(units, name, "errors_later"), later),
        "second_later": per_million(_alarms(units, name, "warnings_later"), later),
        "first_warm_up": per_million(_alarms(units, name, "errors_warm_up"), early),
        "second_warm_up": per_million(_alarms(units, name, "warnings_warm_up"), early),
        "normal_runs": _alarms([u for u in units if u["unit"]["schedule"]["event"] == "none"], name, "errors_later"),
        "runs_with_an_event": _alarms(
            [u for u in units if u["unit"]["schedule"]["event"] != "none"], name, "errors_later"
        ),
        "checks": later + early,
    }


def _controls(units: list[Row]) -> Row:
    """Per legitimate event: alarms of the package, and what they were taken for."""
    result: Row = {}
    for unit in units:
        row = result.setdefault(unit["unit"]["schedule"]["event"], {"runs": 0, "errors": 0, "causes": []})
        alarms = unit["alarms"]["asd adaptive"]
        row["runs"] += 1
        row["errors"] += alarms["errors_later"] + alarms["errors_warm_up"]
        row["causes"] = sorted({*row["causes"], *alarms["causes"]})
    return result


def _confusion(rows: list[Row]) -> Row:
    """What the package takes faults for that it found; all of them are hardware."""
    result: dict[str, int] = {}
    for row in rows:
        found = row["found"]["asd adaptive"]
        if found["error"] >= 0:
            result[found["cause"]] = result.get(found["cause"], 0) + 1
    return result


def _harm(rows: list[Row]) -> Row:
    return {
        group: _by_stratum(some, lambda these: _share(sum(row["harmful"] for row in these), len(these)))
        for group, some in (
            ("single", [row for row in rows if row["duration"] == 1]),
            ("persistent", [row for row in rows if row["duration"] > 1]),
        )
    }


def _chaos(rows: list[Row]) -> Row:
    """The faults that were followed only to prove that such small ones do no harm."""
    small = [row for row in rows if row["change"] < 0.02 and row["followed"]]
    return {"followed": len(small), "harmful": sum(row["harmful"] for row in small)}


def _targets(rows: list[Row], units: list[Row]) -> list[Row]:
    single = [row for row in rows if row["harmful"] and row["duration"] == 1]
    lasting = [row for row in rows if row["harmful"] and row["duration"] > 1]
    targets = []
    for what, some, wanted in (("single-event", single, 0.97), ("persistent", lasting, 0.99)):
        worst = _coverage("asd adaptive", some)["worst_stratum"]
        measured = (
            f"{worst['share']:.3f} in {worst['name']}, n = {worst['of']}" if worst else "no stratum is large enough"
        )
        met = worst is not None and worst["share"] >= wanted
        targets.append(
            _target(f"harmful {what} faults in their own steps, worst stratum", measured, f">= {wanted}", met)
        )
    for dtype, wanted in (("float32", 0.995), ("bfloat16", 0.93)):
        some = [row for row in rows if row["dtype"] == dtype and row.get("checksum")]
        share = _share(sum(row["found"][CHECKSUMS["variance"]]["error"] == 0 for row in some), len(some))
        measured = f"{share['share']:.3f}, n = {share['of']}"
        targets.append(
            _target(f"corrupted products, checksum, {dtype}", measured, f">= {wanted}", share["share"] >= wanted)
        )
    named = _named(WITH_CHECKSUM, rows)
    for what, wanted in (("rank", 0.995), ("operator", 0.99)):
        measured = f"{named[what]['share']:.3f}, n = {named[what]['of']}"
        targets.append(
            _target(f"right {what} named, with checksum", measured, f">= {wanted}", named[what]["share"] >= wanted)
        )
    alarms = _false_alarms("asd adaptive", units)["first_later"]
    targets.append(
        _target(
            "first-level false alarms per million checks",
            f"{alarms[0]:.2f} (<= {alarms[1]:.2f})",
            "<= 1",
            alarms[0] <= 1,
        )
    )
    checks = _sum(units, "warm_up") + _sum(units, "later")
    targets.append(_target("clean checks", str(checks), ">= 3000000", checks >= 3_000_000))
    targets.append(_target("injections that changed something", str(len(rows)), ">= 3000", len(rows) >= 3000))
    return targets


def _target(name: str, measured: str, wanted: str, met: bool) -> Row:
    return {"name": name, "measured": measured, "wanted": wanted, "met": bool(met)}


def _share(found: int, of: int) -> Row:
    low, high = wilson(found, of)
    return {"found": found, "of": of, "share": found / of if of else 0.0, "low": low, "high": high}


def _sum(units: list[Row], key: str) -> int:
    return sum(unit["checks"][key] for unit in units)


def _alarms(units: list[Row], name: str, key: str) -> int:
    return sum(unit["alarms"][name][key] for unit in units)


def _p95(steps: list[int]) -> float:
    return float(quantiles(steps, n=20)[-1]) if len(steps) > 1 else float(steps[0])


def _cells(row: Row) -> str:
    own, worst = row["own_steps"], row["worst_stratum"]
    text = f"{own['share']:.2f} ({own['low']:.2f}-{own['high']:.2f}) n{own['of']:<3}"
    return f"{text:>20} {worst['share'] if worst else float('nan'):>7.2f} {row['within']['20']['share']:>7.2f}"


def _percent(share: Row) -> str:
    return f"{share['share']:>6.3f}"


def _versions() -> Row:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("mindspore", "numpy", "mindspore-asd"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
