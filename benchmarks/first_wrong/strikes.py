"""What is done to a tensor, and how an answer is judged."""

from __future__ import annotations

from typing import Any

import numpy as np

from asd.dumps.compare.first_divergence import Divergence
from asd.injection import Fault

__all__ = ["AMOUNTS", "judged", "strike_of"]

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
            changed = Fault("output", "x", pattern, float(size), 1, seed=seed).apply(array, 1)
            if changed.tobytes() != array.tobytes():
                log.append(amount)
                return changed
        return array

    return strike


def judged(divergence: Divergence | None, *, right: bool) -> str:
    """What an answer is worth.

    Args:
        divergence: The answer; None: the runs do not part.
        right: Whether it says what was struck.
    """
    if right:
        return "right"
    if divergence is None:
        return "not seen"
    if divergence.kind == "unknown" or divergence.confidence == "low":
        return "can't tell"
    return f"wrong, confidence {divergence.confidence}"
