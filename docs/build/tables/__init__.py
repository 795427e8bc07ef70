"""The tables of the documents, from what the benchmarks have left in `benchmarks/results`."""

from __future__ import annotations

from collections.abc import Callable

from tables.cells import RESULTS, result
from tables.cluster import acting, fleet, publishing
from tables.debugging import debugging, first_wrong, first_wrong_ranks
from tables.detection import curve, found_aims, found_faults, headline
from tables.history import NoHistoryError, ages
from tables.ranks import ascend, compiling, cost, groups, known_answers, overhead, weights

__all__ = ["RESULTS", "TABLES", "NoHistoryError", "result"]

_MADE = (headline, found_faults, found_aims, curve, debugging, first_wrong, first_wrong_ranks, publishing, acting)
TABLES: dict[str, Callable[..., str]] = {
    made.__name__: made
    for made in (*_MADE, groups, ascend, cost, weights, compiling, overhead, known_answers, fleet, ages)
}
