"""The smallest error of one element that each detector finds, by the size of the tensor and its precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from asd.operators.kernel.product import TOLERANCES, check_product
from asd.rules import SilentCheckV3
from asd.rules.history import History
from asd.rules.readings.features import Features
from benchmarks.detection.faults import round_to_bfloat16
from benchmarks.detection.features import features

__all__ = ["COLUMNS", "sensitivity"]

COLUMNS = (64, 256, 1024, 4096)
ROWS, INNER, HISTORY, TRIALS = 32, 64, 40, 5
EXPONENTS = np.arange(-23, 14, 0.5)
Array = np.ndarray[Any, Any]


def sensitivity(seed: int) -> list[dict[str, Any]]:
    """One row for each precision and width.

    Returns:
        Per detector the smallest error, relative to the root mean square of the product, that it finds in all trials;
        None if it finds none up to 2^13.5.
    """
    return [
        {"dtype": dtype, "columns": columns, "elements": ROWS * columns, "smallest": _smallest(dtype, columns, seed)}
        for dtype in ("float32", "bfloat16")
        for columns in COLUMNS
    ]


def _smallest(dtype: str, columns: int, seed: int) -> dict[str, float | None]:
    random = np.random.default_rng([seed, columns])
    history, published = History("Y"), SilentCheckV3()
    for _ in range(HISTORY):
        sizes = features(_product(random, columns, dtype)[2])
        history.update(Features(*sizes[:3], int(sizes[3])))
        published.update(sizes[0] ** 2)
    limits, square = history.limit(), published.limit()

    def adaptive(a: Array, b: Array, c: Array) -> bool:
        return any(size > limit for size, limit in zip(features(c), limits.values(), strict=False))

    def vendor(a: Array, b: Array, c: Array) -> bool:
        return features(c)[0] ** 2 > square

    def checksum(tolerance: str) -> Callable[[Array, Array, Array], bool]:
        return lambda a, b, c: bool(check_product(a, b, c, dtype=dtype, tolerance=tolerance).wrong)

    rules = {"asd adaptive": adaptive, "Ascend V3": vendor}
    rules |= {f"checksum, {name}": checksum(name) for name in TOLERANCES}
    products = [_product(random, columns, dtype) for _ in range(TRIALS)]
    at = [(int(random.integers(ROWS)), int(random.integers(columns))) for _ in products]
    return {name: _search(rule, products, at, dtype) for name, rule in rules.items()}


def _search(
    rule: Callable[[Array, Array, Array], bool], products: list[Any], at: list[Any], dtype: str
) -> float | None:
    for exponent in EXPONENTS:
        if all(rule(a, b, _spoil(c, where, exponent, dtype)) for (a, b, c), where in zip(products, at, strict=True)):
            return float(2.0**exponent)
    return None


def _spoil(c: Array, where: tuple[int, int], exponent: float, dtype: str) -> Array:
    faulty = c.copy()
    faulty[where] += np.float32(2.0**exponent * np.sqrt(np.mean(np.square(c))))
    return round_to_bfloat16(faulty) if dtype == "bfloat16" else faulty


def _product(random: np.random.Generator, columns: int, dtype: str) -> tuple[Array, Array, Array]:
    a = random.standard_normal((ROWS, INNER)).astype(np.float32)
    b = random.standard_normal((INNER, columns)).astype(np.float32)
    c = a @ b
    return a, b, round_to_bfloat16(c) if dtype == "bfloat16" else c
