"""From scores to numbers: every proportion with its Wilson interval, and by stratum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from statistics import median, quantiles
from typing import Any

from asd.rules.checksum import EVERY, FIRST_STEPS
from benchmarks.detection.detectors import COMPOSITES, DETECTORS, WITH_SECOND_LOOK
from benchmarks.detection.score import NOT_TOLD
from benchmarks.detection.wilson import per_million, wilson

__all__ = [
    "CHECKSUMS",
    "REPLAY",
    "SAMPLED",
    "WITH_CHECKSUM",
    "Row",
    "chaos",
    "checks_of",
    "controls",
    "cost",
    "coverage",
    "detector",
    "false_alarms",
    "harm",
    "named",
    "proportion",
    "rows_of",
    "table",
    "told",
]

WITHIN = (0, 1, 5, 20)
SMALLEST_STRATUM = 5
"""Strata with fewer harmful faults are listed, but never called the worst."""
_DTYPES = ("float32", "bfloat16")
STATE_TARGETS = ("weight", "m", "v", "master")
CHECKSUMS = {"variance": "asd checksum", "mindspore": "MindSpore checksum", "torch": "torch_npu checksum"}
WITH_CHECKSUM, REPLAY = "asd adaptive + checksum", "full replay"
"""The check of every product, norm and mean over ranks beside the tiers, and all computed a second time elsewhere."""
SAMPLED = "asd adaptive + second look + checksum, sampled"
"""All tiers as they come: products, norms and means are checked in turn, in the first steps of a process, after an
anomaly of either level, on whichever rank, and in a second look. One that is wrong in the first step of a fault counts
as wrong in all of them. Runs are so short that three of six phases are first steps of a process."""
Row = dict[str, Any]
_OF_MEAN: Row = {"rank": -1, "cause": "unknown"}
"""All ranks see a mean that is wrong, so nobody is named for it."""


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
            _add_computed(row, facts["schedule"])
        yield row


def _add_computed(row: Row, schedule: Row) -> None:
    """What checksums and replays found, which need no history."""
    sums = row.get("checksum")
    for key, name in CHECKSUMS.items():
        hit = bool(sums and sums.get(key))
        row["found"][name] = _hit(row, hit)
    tiers = row["found"]["asd adaptive"]
    shown = bool(row.get("mean") or row.get("norm") or (sums and sums.get("variance")))
    in_checksum = {**_hit(row, shown), **(_OF_MEAN if row.get("mean") else {})} if shown else tiers
    row["found"][WITH_CHECKSUM] = in_checksum
    row["found"][REPLAY] = _hit(row, row["target"] == "site")
    looked = row["found"][WITH_SECOND_LOOK]
    due = _first_due(row, schedule) if shown else row["duration"]
    earlier = due < row["duration"] and not 0 <= looked["error"] <= due
    row["found"][SAMPLED] = {**in_checksum, "error": due} if earlier else looked


def _first_due(row: Row, schedule: Row) -> int:
    """Steps of a fault until what it strikes is checked, if that is sampled."""
    resumed = schedule["event"] == "resume" and row["start"] >= schedule["at"]
    if row["start"] - (schedule["at"] if resumed else 0) < FIRST_STEPS:
        return 0
    warned, again = row["found"][WITH_SECOND_LOOK]["warning"], row["found"]["asd second look"].get("again", -1)
    in_turn: int = (row["place"] - row["start"]) % EVERY
    # What passes is right when the step is made again, so that only its turn is left.
    looked = [again] if again >= 0 and row["duration"] > 1 else []
    return min([in_turn, *looked, *([warned + 1] if warned >= 0 else [])])


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
        "told": told(name, rows, units),
        "false_alarms": false_alarms(name, units),
        "microseconds_a_check": cost(name, units),
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
    }


def _in_time(row: Row, name: str) -> bool:
    return 0 <= row["found"][name]["error"] < row["duration"]


def _by_stratum(rows: list[Row], measure: Callable[[list[Row]], Row]) -> Row:
    return {key: measure(some) for key, some in _strata(rows).items()}


def _strata(rows: list[Row]) -> dict[str, list[Row]]:
    """Every stratum of every axis, and of dtype and site together."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        for axis in ("family", "dtype", "ranks", "phase", "pattern", "site", "duration"):
            groups.setdefault(f"{axis} {row[axis]}", []).append(row)
        groups.setdefault(f"{row['dtype']}, {row['site']}", []).append(row)
    return dict(sorted(groups.items()))


def named(name: str, rows: list[Row]) -> Row:
    """Of faults in computed tensors that were found in time: was the right rank, the right operator named?"""
    found = [row for row in rows if row["target"] == "site" and _in_time(row, name)]
    many = [row for row in found if row["ranks"] > 2]
    right = sum(row["found"][name].get("rank") == row["rank"] for row in many)
    operators = [(_operator(row, name), row["operator"]) for row in found]
    layer = sum(said is not None and said.split(".")[0] == true.split(".")[0] for said, true in operators)
    return {
        "rank": proportion(right, len(many)),
        "layer": proportion(layer, len(found)),
        "operator": proportion(sum(said == true for said, true in operators), len(found)),
    }


def told(name: str, rows: list[Row], units: list[Row]) -> Row:
    """What faults that were found, and steps of runs without faults that were flagged, were taken for."""
    faults = Counter(
        found.get("cause") or NOT_TOLD for row in rows if (found := row["found"][name])["error"] >= 0
    )  # fmt: skip
    events: Counter[str] = Counter()
    for unit in units:
        if unit["unit"]["schedule"]["event"] != "none" and name in unit["alarms"]:
            events.update(unit["alarms"][name]["causes"])
    return {"faults": dict(sorted(faults.items())), "legitimate_events": dict(sorted(events.items()))}


def cost(name: str, units: list[Row]) -> float | None:
    """CPU time of a detector for each tensor it could see, which Python needs here; None where it was not timed."""
    timed = [unit["alarms"][name]["seconds"] for unit in units if name in unit["alarms"]]
    checks = checks_of(units, "warm_up") + checks_of(units, "later")
    return round(1e6 * sum(timed) / checks, 3) if timed and checks else None


def table(names: list[str], rows: list[Row], units: list[Row]) -> Row:
    """Everything about every detector, in every stratum.

    Clean checks belong to a stratum of their family, dtype, number of ranks and kind of tensor; a clean run has no
    pattern, duration or phase of a fault, so these strata have no false alarms of their own.
    """
    result: Row = {}
    for key, some in _strata(rows).items():
        where = next((axis for axis in ("family", "dtype", "ranks") if key.startswith(f"{axis} ")), None)
        own = [unit for unit in units if where and f"{where} {_facts(unit)[where]}" == key]
        result[key] = {name: _line(name, some, own) for name in names}
    for kind in sorted({place["kind"] for unit in units for place in unit["places"]}):
        for where, dtypes in (("site", _DTYPES), *((f"{dtype},", (dtype,)) for dtype in _DTYPES)):
            own = [unit for unit in units if _facts(unit)["dtype"] in dtypes]
            for name, line in result.get(f"{where} {kind}", {}).items():
                if name in DETECTORS or name in COMPOSITES:
                    line["false_alarms"] = false_alarms_at(name, own, kind)
    return result


def _line(name: str, rows: list[Row], units: list[Row]) -> Row:
    full = detector(name, rows, units)
    line = {group: full[group]["within"] | {"own": full[group]["own_steps"]} for group in ("single", "persistent")}
    line |= {key: full[key] for key in ("all_changes", "steps_to_detect", "named")}
    line["told"] = full["told"] if units else {"faults": full["told"]["faults"]}
    if units:
        line |= {key: full[key] for key in ("false_alarms", "microseconds_a_check")}
    return line


def false_alarms_at(name: str, units: list[Row], kind: str) -> Row:
    """False alarms of a detector at tensors of one kind, after the first steps."""
    checks = sum(unit["checks"]["later_by_kind"].get(kind, 0) for unit in units)
    first, second = (
        sum(unit["alarms"][name][key].get(kind, 0) for unit in units) for key in ("errors_by_kind", "warnings_by_kind")
    )
    return {"first_later": per_million(first, checks), "second_later": per_million(second, checks), "checks": checks}


def _facts(unit: Row) -> Row:
    facts = unit["unit"]
    dtype = "bfloat16" if facts["rounded"] else "float32"
    return {"family": facts["family"], "dtype": dtype, "ranks": facts["ranks"]}


def _operator(row: Row, name: str) -> str | None:
    place = row["found"][name].get("place", -1)
    return row["operators"][place] if place >= 0 else None


def false_alarms(name: str, units: list[Row]) -> Row:
    if name in {WITH_CHECKSUM, SAMPLED}:  # checksums of healthy products are counted apart
        name = WITH_SECOND_LOOK if name == SAMPLED else "asd adaptive"
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
    """Per legitimate event: alarms of the package, what they were taken for, and what replays of their steps said."""
    result: Row = {}
    for unit in units:
        empty = {"runs": 0, "errors": 0, "steps": 0, "steps_replayed": 0, "isolations": 0, "causes": {}}
        row = result.setdefault(unit["unit"]["schedule"]["event"], empty)
        alarms = unit["alarms"]["asd adaptive"]
        row["runs"] += 1
        row["errors"] += alarms["errors_later"] + alarms["errors_warm_up"]
        for key in ("steps", "steps_replayed", "isolations"):
            row[key] += alarms[key]
        row["causes"] = dict(Counter(row["causes"]) + Counter(alarms["causes"]))
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
    share = found / of if of else 0.0
    return {"found": found, "of": of, "share": round(share, 5), "low": round(low, 5), "high": round(high, 5)}


def checks_of(units: list[Row], key: str) -> int:
    """Clean checks of all units, `warm_up` or `later`."""
    return sum(unit["checks"][key] for unit in units)


def _alarms(units: list[Row], name: str, key: str) -> int:
    return sum(unit["alarms"][name][key] for unit in units)


def _p95(steps: list[int]) -> float:
    return float(quantiles(steps, n=20)[-1]) if len(steps) > 1 else float(steps[0])
