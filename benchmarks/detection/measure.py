"""From scores to numbers: every proportion with its Wilson interval, and by stratum."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median, quantiles
from typing import Any

from benchmarks.detection.detectors import COMPOSITES, DETECTORS
from benchmarks.detection.wilson import per_million, wilson

__all__ = [
    "CHECKSUMS",
    "REPLAY",
    "WITH_CHECKSUM",
    "Row",
    "chaos",
    "checks_of",
    "confusion",
    "controls",
    "coverage",
    "detector",
    "false_alarms",
    "harm",
    "named",
    "proportion",
    "rows_of",
]

WITHIN = (0, 1, 5, 20)
SMALLEST_STRATUM = 5
"""Strata with fewer harmful faults are listed, but never called the worst."""
STATE_TARGETS = ("weight", "m", "v", "master")
CHECKSUMS = {"variance": "asd checksum", "mindspore": "MindSpore checksum", "torch": "torch_npu checksum"}
WITH_CHECKSUM, REPLAY = "asd adaptive + checksum", "full replay"
"""The checksum of every product beside the tiers, and every computation done twice on another device."""
Row = dict[str, Any]


def rows_of(unit: Row) -> Iterable[Row]:
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


def detector(name: str, rows: list[Row], units: list[Row]) -> Row:
    """Everything about one detector."""
    harmful = [row for row in rows if row["harmful"]]
    single = [row for row in harmful if row["duration"] == 1]
    lasting = [row for row in harmful if row["duration"] > 1]
    steps = sorted(row["found"][name]["error"] for row in harmful if row["found"][name]["error"] >= 0)
    return {
        "single": coverage(name, single),
        "persistent": coverage(name, lasting),
        "all_changes": proportion(sum(_in_time(row, name) for row in rows), len(rows)),
        "steps_to_detect": {"median": median(steps), "p95": _p95(steps), "n": len(steps)} if steps else {"n": 0},
        "named": named(name, rows),
        "false_alarms": false_alarms(name, units),
        "second_level_harmful": proportion(sum(row["found"][name]["warning"] >= 0 for row in harmful), len(harmful)),
    }


def coverage(name: str, rows: list[Row]) -> Row:
    """Within so many steps; a lasting fault is in time when it is found while it lasts."""
    strata = _by_stratum(rows, lambda some: proportion(sum(_in_time(row, name) for row in some), len(some)))
    judged = {key: value for key, value in strata.items() if value["of"] >= SMALLEST_STRATUM}
    worst = min(judged, key=lambda key: (judged[key]["share"], judged[key]["low"]), default=None)
    within = {
        str(k): proportion(sum(0 <= row["found"][name]["error"] <= k for row in rows), len(rows)) for k in WITHIN
    }  # fmt: skip
    return {
        "own_steps": proportion(sum(_in_time(row, name) for row in rows), len(rows)),
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


def named(name: str, rows: list[Row]) -> Row:
    """Of faults in computed tensors that were found in time: was the right rank, the right operator named?"""
    found = [row for row in rows if row["target"] == "site" and _in_time(row, name)]
    many = [row for row in found if row["ranks"] > 2]
    right = sum(row["found"][name].get("rank") == row["rank"] for row in many)
    operator = sum(_operator(row, name) == row["operator"] for row in found)
    return {"rank": proportion(right, len(many)), "operator": proportion(operator, len(found))}


def _operator(row: Row, name: str) -> str | None:
    place = row["found"][name].get("place", -1)
    return row["operators"][place] if place >= 0 else None


def false_alarms(name: str, units: list[Row]) -> Row:
    if name == WITH_CHECKSUM:
        name = "asd adaptive"
    if name not in {*DETECTORS, *COMPOSITES}:
        key = next((key for key, shown in CHECKSUMS.items() if shown == name), None)
        products = sum(unit["checksums"]["products"] for unit in units)
        first = sum(unit["checksums"].get(key, 0) for unit in units) if key else 0
        rate = per_million(first, products) if products else (0.0, 1e9)
        return {"first_later": rate, "second_later": (0.0, rate[1]), "first_warm_up": rate, "checks": products}
    later, early = checks_of(units, "later"), checks_of(units, "warm_up")
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


def controls(units: list[Row]) -> Row:
    """Per legitimate event: alarms of the package, and what they were taken for."""
    result: Row = {}
    for unit in units:
        row = result.setdefault(unit["unit"]["schedule"]["event"], {"runs": 0, "errors": 0, "causes": []})
        alarms = unit["alarms"]["asd adaptive"]
        row["runs"] += 1
        row["errors"] += alarms["errors_later"] + alarms["errors_warm_up"]
        row["causes"] = sorted({*row["causes"], *alarms["causes"]})
    return result


def confusion(rows: list[Row]) -> Row:
    """What the package takes faults for that it found; all of them are hardware."""
    result: dict[str, int] = {}
    for row in rows:
        found = row["found"]["asd adaptive"]
        if found["error"] >= 0:
            result[found["cause"]] = result.get(found["cause"], 0) + 1
    return result


def harm(rows: list[Row]) -> Row:
    """How many faults do harm, by stratum."""
    return {
        group: _by_stratum(some, lambda these: proportion(sum(row["harmful"] for row in these), len(these)))
        for group, some in (
            ("single", [row for row in rows if row["duration"] == 1]),
            ("persistent", [row for row in rows if row["duration"] > 1]),
        )
    }


def chaos(rows: list[Row]) -> Row:
    """The faults that were followed only to prove that such small ones do no harm."""
    small = [row for row in rows if row["change"] < 0.02 and row["followed"]]
    return {"followed": len(small), "harmful": sum(row["harmful"] for row in small)}


def proportion(found: int, of: int) -> Row:
    """A proportion with its Wilson interval."""
    low, high = wilson(found, of)
    return {"found": found, "of": of, "share": found / of if of else 0.0, "low": low, "high": high}


def checks_of(units: list[Row], key: str) -> int:
    """Clean checks of all units, `warm_up` or `later`."""
    return sum(unit["checks"][key] for unit in units)


def _alarms(units: list[Row], name: str, key: str) -> int:
    return sum(unit["alarms"][name][key] for unit in units)


def _p95(steps: list[int]) -> float:
    return float(quantiles(steps, n=20)[-1]) if len(steps) > 1 else float(steps[0])
