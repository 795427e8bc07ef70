"""The tables and figures of the documents, from what the benchmarks have left in `benchmarks/results`."""

from __future__ import annotations

from collections.abc import Callable

from tables.cells import RESULTS, count, of, result
from tables.cluster import acting, devices, fleet, many_files, publishing
from tables.costs import checksum_steps, cost_aims, parts, processor, results_again, steps
from tables.debugging import (
    debugging,
    first_wrong,
    first_wrong_ranks,
)
from tables.detection import BEST, default_single, detectors, five, healthy, held_out, held_out_places, quick, targets
from tables.ranks import ascend, groups, layouts

__all__ = ["BEST", "FIGURES", "RESULTS", "TABLES", "result"]

TABLES: dict[str, Callable[..., str]] = {
    made.__name__: made
    for made in (
        five, steps, checksum_steps, results_again, parts, cost_aims, detectors, targets, healthy, debugging,
        first_wrong, first_wrong_ranks,
        publishing, many_files, acting, layouts, groups, ascend, devices,
        fleet, held_out, held_out_places,
    )
}  # fmt: skip

FIGURES: dict[str, Callable[..., str]] = {
    "trainings": lambda: count(result("detection")["trainings"]),
    "faults": lambda: count(result("detection")["injections"] - result("detection")["no_ops_removed"]),
    "harmful": lambda: count(result("detection")["harmful"]),
    "clean_checks": lambda: count(result("detection")["clean_checks"]),
    "made_again": lambda: count(result("detection")["made_again_by_second_looks"]["steps"]),
    "clean_steps": lambda: count(result("detection")["made_again_by_second_looks"]["of"]),
    "second_level": lambda: (
        f"{result('detection')['detectors']['asd adaptive']['false_alarms']['second_later'][0]:.0f}"
    ),
    "clean_products": lambda: count(result("detection")["checksum_on_clean_products"]["products"]),
    "clean_products_wrong": lambda: count(result("detection")["checksum_on_clean_products"]["variance"]),
    "clean_norms": lambda: count(result("detection")["check_on_clean_norms"]["norms"]),
    "clean_norms_wrong": lambda: count(result("detection")["check_on_clean_norms"]["wrong_norms"]),
    "clean_means": lambda: count(result("detection")["checksum_on_clean_means"]["means"]),
    "clean_means_wrong": lambda: count(result("detection")["checksum_on_clean_means"]["wrong_means"]),
    "quick_single": lambda: of(quick()[0]),
    "quick_lasting": lambda: of(quick()[1]),
    "default_single": default_single,
    "processor": processor,
    "mindspore": lambda: result("overhead")["where"]["mindspore"],
}
