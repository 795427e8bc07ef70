"""Lets every detector judge recorded traces; harm labels and the schedule of faults never reach a detector."""

from __future__ import annotations

import json
import pickle
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.detection.alarm import STATE, Alarm, Setup
from benchmarks.detection.detectors import COMPOSITES, DETECTORS
from benchmarks.detection.runner import run_parallel
from benchmarks.detection.schedule import Record
from benchmarks.detection.tiers import SecondLook

__all__ = ["NOT_TOLD", "read_unit", "score_unit", "score_units"]

WARM_UP = 20
"""Clean checks of the first steps are counted apart."""
NOT_TOLD = "not told"
"""The cause of an alarm of a detector that names none."""


def read_unit(path: Path) -> tuple[dict[str, Any], list[Record], list[list[Record]]]:
    """What a unit's file holds: facts, the clean run, and a branch for each fault."""
    with np.load(path) as file:
        meta = json.loads(str(file["meta"]))
        arrays = {key: file[key] for key in file.files if key != "meta"}
    clean, flat = _unpack(arrays, "clean"), _unpack(arrays, "branch")
    branches, at = [], 0
    for length in meta["lengths"]:
        branches.append(flat[at : at + length])
        at += length
    return meta, clean, branches


def score_units(paths: Sequence[Path], workers: int) -> list[dict[str, Any]]:
    """Scores each file; see `score_unit`."""
    return run_parallel(score_unit, [(path,) for path in paths], workers, "scoring")


def score_unit(path: Path) -> dict[str, Any]:
    """Scores one file.

    Returns:
        The unit's facts without traces, per detector the clean checks and alarms, and per fault what each detector
        found.
    """
    meta, clean, branches = read_unit(path)
    sites, ranks = meta["places"], meta["unit"]["ranks"]
    places = [*sites, *(_averaged(weight, ranks) for weight in meta["weights"])]
    kinds = [place["kind"] for place in places]
    of_weights = {site["operator"]: i for i, site in enumerate(sites) if site["kind"] == "W"}
    weights = [of_weights.get(place["operator"], -1) for place in places[len(sites) :]]
    setup = Setup([site["name"] for site in sites], kinds[: len(sites)], ranks, weights)
    faults = [{**fault, "found": {}} for fault in meta["faults"]]
    starts = {fault["start"] for fault in faults}
    counts, made_again = {}, 0
    for name, make in DETECTORS.items():
        detector = make(setup)
        alarms, saved, began = [], {}, time.process_time()
        for step, record in enumerate(clean):
            if step in starts:
                saved[step] = pickle.dumps(detector)
            alarms.append(_step(detector, step, record, record))
        counts[name] = {**_count(alarms, meta["replayed"], kinds), "seconds": time.process_time() - began}
        if isinstance(detector, SecondLook):
            made_again = detector.made_again
        for fault, branch in zip(faults, branches, strict=True):
            if branch:
                fault["found"][name] = _judge(pickle.loads(saved[fault["start"]]), fault, branch, clean, alarms)
    _compose(faults, counts)
    early = min(WARM_UP, len(clean))
    tensors = Counter({kind: count * ranks for kind, count in Counter(setup.kinds).items()})
    tensors.update(kinds[setup.place_of(i)] for i, site in enumerate(weights) if ranks > 1 or site < 0)
    warm_up, later = ({kind: count * steps for kind, count in tensors.items()} for steps in (early, len(clean) - early))
    return {
        **{key: meta[key] for key in ("unit", "replayed", "cpu_seconds", "checksums")},
        "places": places,
        "checks": {"warm_up": sum(warm_up.values()), "later": sum(later.values()), "later_by_kind": later},
        "alarms": counts,
        "made_again": {"steps": made_again, "of": len(clean)},
        "faults": faults,
    }


def _averaged(weight: str, ranks: int) -> dict[str, str]:
    """The gradient of a weight as the optimizer gets it, as a place."""
    operator = weight.rpartition(".")[0] or weight
    if ranks == 1:
        return {"name": weight, "operator": operator, "kind": "W"}
    return {"name": f"averaged.{weight}", "operator": operator, "kind": "A"}


def _step(detector: Any, number: int, record: Record, again: Record) -> Alarm:
    """Lets a detector judge a step; only one that makes it again gets to see what that shows."""
    if isinstance(detector, SecondLook):
        return detector.step(number, record, again)
    alarm: Alarm = detector.step(number, record)
    return alarm


def _judge(
    detector: Any, fault: dict[str, Any], branch: list[Record], clean: list[Record], alarms: list[Alarm]
) -> dict[str, Any]:
    """What a detector found in a branch: steps to the first alarm that the clean run did not raise as well.

    A step made again shows the same, but where a computation failed in that step only; what a state lost stays lost.
    """
    passes = fault["duration"] == 1 and fault["target"] in {"site", "reduced"}
    found: dict[str, Any] = {"error": -1, "warning": -1}
    for offset, record in enumerate(branch):
        step = fault["start"] + offset
        alarm = _step(detector, step, record, clean[step] if passes and offset == 0 else record)
        if alarm.made_again and "again" not in found:
            found["again"] = offset
        if found["warning"] < 0 and set(alarm.warnings) - set(alarms[step].warnings):
            found["warning"] = offset
        if set(alarm.errors) - set(alarms[step].errors):
            found |= {"error": offset, "rank": alarm.suspect, "place": alarm.place, "cause": alarm.cause}
            if fault["target"] == "site":
                found["matched"] = (fault["rank"], fault["place"]) in alarm.errors
            break
    return found


def _compose(faults: list[dict[str, Any]], counts: dict[str, Any]) -> None:
    """Adds the detectors that are several others at once."""
    for name, parts in COMPOSITES.items():
        counts[name] = _add([counts[part] for part in parts])
        for fault in faults:
            if fault["found"]:
                fault["found"][name] = _first([fault["found"][part] for part in parts])


def _first(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What the earliest of several detectors found; of two that are as early, the first."""
    errors = [each for each in found if each["error"] >= 0]
    warnings = [each["warning"] for each in found if each["warning"] >= 0]
    earliest = min(errors, key=lambda each: each["error"], default={"error": -1})
    return {**earliest, "warning": min(warnings, default=-1)}


def _add(counts: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts of several detectors together."""
    return {
        key: dict(sum((Counter(each[key]) for each in counts), Counter()))
        if isinstance(value, dict)
        else sum(each[key] for each in counts)
        for key, value in counts[0].items()
    }


def _count(alarms: list[Alarm], replayed: dict[str, Any], kinds: Sequence[str]) -> dict[str, Any]:
    """Alarms in a clean run, what they were taken for, and what a replay of their steps said."""
    flagged = [step for step, alarm in enumerate(alarms) if alarm.errors]
    again = range(replayed["start"], replayed["start"] + replayed["steps"])
    early, late = alarms[:WARM_UP], alarms[WARM_UP:]
    return {
        "errors_warm_up": sum(len(set(a.errors)) for a in early),
        "errors_later": sum(len(set(a.errors)) for a in late),
        "warnings_warm_up": sum(len(set(a.warnings)) for a in early),
        "warnings_later": sum(len(set(a.warnings)) for a in late),
        "errors_by_kind": dict(Counter(kinds[at] for a in late for _, at in set(a.errors) if at != STATE)),
        "warnings_by_kind": dict(Counter(kinds[at] for a in late for _, at in set(a.warnings) if at != STATE)),
        "steps": len(flagged),
        "steps_replayed": sum(step in again for step in flagged),
        "isolations": sum(step in replayed["differing"] for step in flagged),
        "causes": dict(Counter(alarms[step].cause or NOT_TOLD for step in flagged)),
    }


def _unpack(arrays: dict[str, Any], prefix: str) -> list[Record]:
    if f"{prefix}_loss" not in arrays:
        return []
    columns = [arrays[f"{prefix}_{key}"] for key in Record._fields]
    plain = [column if column.ndim > 1 else column.tolist() for column in columns]
    return [Record(*row) for row in zip(*plain, strict=True)]
