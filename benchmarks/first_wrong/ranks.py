"""Seeded faults on one of two ranks of data parallel, in PyNative: is the right operator of the right rank named?"""

from pathlib import Path
from typing import Any

from benchmarks._ranks import ranks_of


def run(faults: range, folder: Path) -> dict[str, Any]:
    """Has both ranks make the step with each fault, and returns the counts of rank 0."""
    given = (folder, faults.start, len(faults))
    with ranks_of(Path(__file__).with_name("rank.py"), given, 2, "FOUND", 36000.0) as (told, _):
        found = next(each for each in told if each["rank"] == 0)
    return {"counts": dict(sorted(found["counts"].items())), "wrong": found["wrong"]}
