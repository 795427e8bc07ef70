"""The tables and figures of the documents, from what the benchmarks have left in `benchmarks/results`."""

from __future__ import annotations

from collections.abc import Callable

from tables.cells import RESULTS, result
from tables.cluster import acting, devices, fleet, many_files, publishing
from tables.costs import checksum_steps, cost_aims, parts, processor, results_again, steps
from tables.debugging import (
    debugging,
    first_wrong,
    first_wrong_ranks,
)
from tables.detection import five, healthy, held_out, held_out_places
from tables.ranks import ascend, groups, layouts

__all__ = ["FIGURES", "RESULTS", "TABLES", "result"]

TABLES: dict[str, Callable[..., str]] = {
    made.__name__: made
    for made in (
        five, steps, checksum_steps, results_again, parts, cost_aims, healthy, debugging,
        first_wrong, first_wrong_ranks,
        publishing, many_files, acting, layouts, groups, ascend, devices,
        fleet, held_out, held_out_places,
    )
}  # fmt: skip

FIGURES: dict[str, Callable[..., str]] = {
    "processor": processor,
    "mindspore": lambda: result("overhead")["where"]["mindspore"],
}
