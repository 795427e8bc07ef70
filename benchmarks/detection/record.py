"""Runs one unit and writes what could be seen: the clean run, and a branch for each fault that changed anything."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from asd.operators.kernel.mean import check_mean
from asd.operators.kernel.norm import check_norm
from asd.operators.kernel.product import TOLERANCES, check_product
from benchmarks.detection.engine import engine
from benchmarks.detection.faults import Fault
from benchmarks.detection.plan import FROM_THE_START, HORIZON, Unit, draw_faults
from benchmarks.detection.schedule import Record
from benchmarks.detection.training import State, Training

__all__ = ["record_unit", "run_clean", "write_unit"]

HARM_EVALUATION = 0.02
"""Nats by which the loss on the evaluation batches may rise at most."""
HARM_TRAINING = 0.15
"""Nats by which the training loss of a step may rise at most."""
CHAOS = 0.02
"""Single-step faults that change the averaged gradient by less than this share of its norm are called harmless..."""
CHECKED_ANYWAY = 10
"""...and one in so many is followed all the same, to prove it."""
CHECKSUM_EVERY = 16
"""Each product, each norm and each mean over ranks of a clean run is checked in one step of so many."""
REPLAYED = 40
"""Steps of a run without faults that are computed a second time, from its event on."""


def record_unit(unit: Unit) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Runs a unit.

    Returns:
        What JSON can hold, and the arrays.
    """
    training = Training(engine(unit.family, rounded=unit.rounded), unit.ranks, unit.schedule, unit.seed)
    starts = sorted({start for _, start in unit.strikes})
    began = time.process_time()
    replay_at = starts[0] if starts else 0 if unit.schedule.event in FROM_THE_START else unit.schedule.at
    states, clean, sums = run_clean(training, sorted({*starts, replay_at}))
    replayed = replay(training, states[replay_at], replay_at, clean, HORIZON if starts else REPLAYED)
    faults = draw_faults(unit, places=len(training.engine.places), weights=len(training.engine.weights))
    notes, branches = [], []
    for start in starts:
        _, at_start = training.step(states[start], start, keep=True)
        after = training.evaluate(states[start + HORIZON])
        for number, (phase, fault) in enumerate(faults):
            if fault.start == start:
                note, branch = strike(training, states[start], fault, at_start, clean, after, number)
                notes.append({"phase": phase, **fault.data(), **note})
                branches.append(branch)
        training.forget()
    places = [{"name": p.name, "operator": p.operator, "kind": p.kind} for p in training.engine.places]
    sizes = [int(np.prod(training.engine.probe_shape(p))) for p in training.engine.places]
    meta = {
        "unit": unit.data(), "places": places, "sizes": sizes, "weights": [w[0] for w in training.engine.weights],

        "replayed": replayed, "cpu_seconds": time.process_time() - began,
        "faults": notes, "lengths": [len(branch) for branch in branches],
        "checksums": sums,
    }  # fmt: skip
    arrays = {f"clean_{key}": value for key, value in pack(clean).items()}
    arrays |= {f"branch_{key}": value for key, value in pack([r for b in branches for r in b]).items()}
    return meta, arrays


def run_clean(training: Training, starts: list[int]) -> tuple[dict[int, State], list[Record], dict[str, Any]]:
    """The run without a fault: its states before `starts` and `HORIZON` steps later, its records, its checksums."""
    kept = {step for start in starts for step in (start, start + HORIZON)}
    states, records, state = {}, [], training.start()
    names = ("products", *TOLERANCES, "norms", "wrong_norms", "means", "wrong_means")
    sums: dict[str, Any] = dict.fromkeys(names, 0)
    for step in range(training.schedule.steps):
        if step in kept:
            states[step] = state
        sampled = step % CHECKSUM_EVERY == 0
        state, record = training.step(state, step, keep=sampled)
        records.append(record)
        if sampled:
            count_checksums(training, step, sums)
            training.forget()
    states.setdefault(training.schedule.steps, state)
    return states, records, sums


def count_checksums(training: Training, step: int, sums: dict[str, Any]) -> None:
    """Adds the checksums of all products and norms of rank 0 in a kept clean step, and of all means."""
    for number in range(len(training.engine.places)):
        wrong_norm = is_norm_wrong(training, step, 0, number, None)
        if wrong_norm is not None:
            sums["norms"] += 1
            sums["wrong_norms"] += wrong_norm
        wrong = checksums(training, step, 0, number, None)
        if wrong:
            sums["products"] += 1
            for name, flag in wrong.items():
                sums[name] += flag
    for weight in range(len(training.engine.weights)):
        wrong_mean = is_mean_wrong(training, weight)
        if wrong_mean is not None:
            sums["means"] += 1
            sums["wrong_means"] += wrong_mean


def replay(training: Training, state: State, start: int, clean: list[Record], steps: int) -> dict[str, Any]:
    """A second clean branch from the same snapshot: its first step, its length, and steps that differ in any bit."""
    differing, steps = [], min(steps, len(clean) - start)
    for step in range(start, start + steps):
        state, record = training.step(state, step)
        if any(not np.array_equal(a, b, equal_nan=True) for a, b in zip(record, clean[step], strict=True)):
            differing.append(step)
    return {"start": start, "steps": steps, "differing": differing}


def strike(
    training: Training, state: State, fault: Fault, at_start: Record, clean: list[Record], after: float, number: int
) -> tuple[dict[str, Any], list[Record]]:
    """Runs the branch with a fault from a snapshot.

    Returns:
        What became of it, and its records: none if the fault changed nothing, only those of its own steps if it is
        harmless without being followed.
    """
    training.changes = 0
    single = fault.target == "site" and fault.duration == 1
    if single:
        state, first = training.strike(state, fault.start, fault, at_start)
    else:
        state, first = training.step(state, fault.start, fault)
    if single and not training.changes:
        return {"no_op": True}, []
    change = training.difference if single else math.inf
    note: dict[str, Any] = {"no_op": False, "change": finite(change), "followed": True}
    note |= without_history(training, fault)
    records = [first]
    if single and change < CHAOS and number % CHECKED_ANYWAY:
        return {**note, "followed": False, "harm": 0.0, "excess": 0.0, "harmful": False}, records
    for step in range(fault.start + 1, fault.start + HORIZON):
        state, record = training.step(state, step, fault)
        records.append(record)
    if not training.changes:
        return {"no_op": True}, []
    harm = training.evaluate(state) - after
    excess = max(r.loss - c.loss for r, c in zip(records, clean[fault.start :], strict=False))
    if not all(math.isfinite(r.loss) for r in records):
        excess = math.inf
    harmful = not (harm <= HARM_EVALUATION and excess <= HARM_TRAINING)
    return {**note, "harm": finite(harm), "excess": finite(excess), "harmful": harmful}, records


def without_history(training: Training, fault: Fault) -> dict[str, Any]:
    """What checks that need no history say of a fault, once its first step was made."""
    if fault.target == "site":
        where = training, fault.start, fault.rank, fault.place, fault
        return {"checksum": checksums(*where), "norm": is_norm_wrong(*where)}
    return {"mean": is_mean_wrong(training, fault.place)} if fault.target == "reduced" else {}


def checksums(training: Training, step: int, rank: int, place: int, fault: Fault | None) -> dict[str, bool] | None:
    """Whether each kind of checksum finds a product wrong, with its fault or without; None if it is no product."""
    one = training.clean_pass(step, rank)
    operands = training.engine.operands(place, one)
    if operands is None:
        return None
    value = one.values[place] if fault is None else training.corrupted(one, fault)
    dtype = "bfloat16" if training.engine.rounded else "float32"
    return {name: bool(check_product(*operands, value, dtype=dtype, tolerance=name).wrong) for name in TOLERANCES}


def is_norm_wrong(training: Training, step: int, rank: int, place: int, fault: Fault | None) -> bool | None:
    """Whether the gradient of a norm's input is wrong, with its fault or without; None if it is something else."""
    one = training.clean_pass(step, rank)
    norm = training.engine.norm(place, one)
    if norm is None:
        return None
    value = one.values[place] if fault is None else training.corrupted(one, fault)
    score = check_norm(**norm, dx=value).dx
    return score > 1


def is_mean_wrong(training: Training, weight: int) -> bool | None:
    """Whether the last mean gradient of a weight does not fit what the ranks gave; None where that says nothing."""
    if training.ranks == 1:
        return None
    part = training.engine.slices()[weight]
    score = check_mean([gradient[part] for gradient in training.given], training.mean[part])
    return score > 1 if math.isfinite(score) else None


def finite(value: float) -> float:
    """A float that JSON can hold."""
    return value if math.isfinite(value) else 1e9


def pack(records: list[Record]) -> dict[str, np.ndarray[Any, Any]]:
    """Records as arrays, stacked along the first axis."""
    if not records:
        return {}
    return {key: np.array([getattr(r, key) for r in records]) for key in Record._fields}


def write_unit(unit: Unit, folder: Path) -> str:
    """Runs a unit unless its file is there, and writes it whole or not at all; returns its name."""
    path = folder / f"{unit.name}.npz"
    if not path.exists():
        meta, arrays = record_unit(unit)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        with temporary.open("wb") as file:
            np.savez_compressed(file, meta=np.array(json.dumps(meta)), **arrays)
        temporary.replace(path)
    return unit.name
