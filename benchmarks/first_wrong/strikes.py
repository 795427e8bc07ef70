"""What is done to a tensor, and how an answer is judged."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from asd.demo.llama import Workload
from asd.dumps.compare.first_difference import Divergence
from asd.injection import Fault
from benchmarks._host_fault import apply
from benchmarks._wilson import wilson

TINY = Workload(hidden=16, layers=1, heads=2, intermediate=32, sequence=8, batch=2)
"""The small Llama that is struck."""
AMOUNTS = ("flip=0", "scale=1.001", "set=1000", "set=1000000")


def strike_of(number: int, amount: str, log: list[str]) -> Any:
    """A function that changes an array in one element; in another one where that one would stay the same.

    Args:
        number: Of the fault: its seed.
        amount: One of `AMOUNTS`.
        log: Gets the amount when something was changed.
    """
    pattern, _, size = amount.partition("=")

    def strike(array: np.ndarray) -> np.ndarray:
        if not isinstance(array, np.ndarray):
            array = np.asarray(array, np.float32)  # MindSpore hands over a tensor without dimensions as a float
        for seed in range(number, number + 50):
            changed = apply(Fault("output", "x", pattern, float(size), 1, seed=seed), array)
            if changed.tobytes() != array.tobytes():
                log.append(amount)
                return changed
        return array

    return strike


def judged(divergence: Divergence | None, kind: str, expected: str, *, rank_right: bool = True) -> str:
    """What an answer is worth.

    Args:
        divergence: The answer; None: the runs do not part.
        kind: `weight`, or whose result was struck.
        expected: Name of the weight or of the call.
        rank_right: Whether the rank is the one that was struck.
    """
    if divergence is None:
        return "not seen"
    is_weight = divergence.kind == "weight" and expected in divergence.reason
    if rank_right and (is_weight if kind == "weight" else divergence.call == expected):
        return "right"
    return "can't tell" if divergence.kind == "rows" else "wrong"


def summed_up(counts: Mapping[str, int], ways: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Of each way to compare how many answers were right, with Wilson's 95 % intervals.

    Args:
        counts: By kind of fault, way and verdict, with spaces between them.
        ways: Their names.
    """
    found = {}
    for way in ways:
        verdicts: dict[str, int] = {}
        for key, count in counts.items():
            _, among, verdict = key.partition(f" {way} ")
            if among:
                verdicts[verdict] = verdicts.get(verdict, 0) + count
        faults = sum(verdicts.values())
        wrong = sum(count for verdict, count in verdicts.items() if verdict.startswith("wrong"))
        right = verdicts.get("right", 0)
        found[way] = {
            "faults": faults,
            "right": right,
            "can't tell": verdicts.get("can't tell", 0),
            "not seen": verdicts.get("not seen", 0),
            "wrong": wrong,
            "right, of 1": wilson(right, faults),
            "wrong, of 1": wilson(wrong, faults),
        }
    return found
