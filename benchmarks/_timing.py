"""One call's time, and what many of them come to."""

import statistics as stats
import time
from collections.abc import Callable
from typing import Any


def spread(values: list[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, middle, high = stats.quantiles(values, n=4)
    return {"median": middle, "q25": low, "q75": high, "n": len(values)}


def timed(function: Callable[..., Any], *args: Any) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    function(*args)
    return time.perf_counter() - began
