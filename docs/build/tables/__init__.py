"""The tables of the documents, from what the benchmarks have left in `benchmarks/results`."""

from __future__ import annotations

from collections.abc import Callable

from tables.cells import RESULTS, result
from tables.cluster import acting, fleet, many_files, publishing
from tables.costs import rules
from tables.debugging import debugging, first_wrong, first_wrong_ranks
from tables.detection import healthy, two
from tables.ranks import ascend, groups, layouts

__all__ = ["RESULTS", "TABLES", "result"]

_MADE = (two, rules, healthy, debugging, first_wrong, first_wrong_ranks, publishing, many_files, acting)
TABLES: dict[str, Callable[..., str]] = {made.__name__: made for made in (*_MADE, layouts, groups, ascend, fleet)}
