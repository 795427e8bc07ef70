"""The table's cells: what holds for a kind in a mode, a precision and a configuration."""

import traceback
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from judgement import judge_healthy, judge_struck
from kinds import KINDS
from trainings import Fault
from watched import Plain, Watched

CONFIGURATIONS = {
    "document": {"ASD_PROTECTION": "document"},
    "adaptive": {"ASD_PROTECTION": "document", "ASD_RULE": "adaptive", "ASD_ON_ANOMALY": "skip"},
    "everything": {"ASD_OPTIONS": "confirm:0.5", "ASD_ON_ANOMALY": "skip"},
}
"""Beside NPU_ASD_ENABLE=1; by name."""
WITH_GRADIENTS = ("loop", "clipping", "accumulation")  # styles in which a weight's gradient can be struck


def fault_of(kind: str, mode: str, precision: str, configuration: str, seed: int) -> Fault:
    """The fault of a cell, chosen by a seed.

    The document's rule looks at gradients of activations only, and at what is enormous.
    """
    name = f"{kind}-{mode}-{precision}-{configuration}-{seed}"
    random = np.random.default_rng(zlib.crc32(name.encode()))
    if configuration == "document":
        return Fault("gradient", 10 ** random.uniform(20, 30), 0)
    which = int(random.integers(1 << 30))
    targets = ["gradient"] + ["weight gradient"] * (precision != "dynamic" and KINDS[kind].style in WITH_GRADIENTS)
    return Fault(str(random.choice(targets)), 10 ** random.uniform(8, 30), which)


def run_group(kind: str, mode: str, precision: str, seed: int, configurations: Sequence[str]) -> list[dict[str, Any]]:
    """The cells of some configurations; MindSpore is in `mode` already."""
    name = {"kind": kind, "mode": mode, "precision": precision}
    cells: list[dict[str, Any]] = []
    try:
        plain = Plain(kind, precision)
        note = f"plain MindSpore fails: {plain.all[0].failure}" if plain.all[0].failure else ""
    except Exception as error:  # whatever MindSpore can't do
        note = f"plain MindSpore fails: {first_line(error)}"
    if note:
        return [{**name, "configuration": each, "failures": [], "note": note} for each in configurations]
    for configuration in configurations:
        environ = CONFIGURATIONS[configuration]
        cell: dict[str, Any] = {**name, "configuration": configuration, "note": "", "failures": []}
        cells.append(cell)
        try:
            healthy = Watched(kind, precision, environ)
            cell["failures"] += judge_healthy(cell, plain, healthy, configuration)
            struck = Watched(kind, precision, environ, fault_of(kind, mode, precision, configuration, seed))
            cell["failures"] += judge_struck(cell, plain, healthy, struck, configuration)
        except Exception as error:  # the cell fails, the next one is looked at all the same
            cell["failures"].append(f"crashes: {first_line(error)}")
            cell["traceback"] = traceback.format_exc()[-2000:]
    return cells


def first_line(error: BaseException) -> str:
    """The first line of an error that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return f"{type(error).__name__}: {lines[0][:200] if lines else ''}"
