"""Charts of feature values: the values, their limits, and the steps in which a value broke its limit."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from asd.exporters.pictures.chart import Area, Scale, axes, line, mark, svg
from asd.exporters.pictures.markup import Html, number

WIDTH, HEIGHT = 380, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 362.0, 24.0, 156.0
"""Edges of the drawing inside the picture; values that are not finite are drawn above its top."""
_MOST_POINTS, _MOST_MARKS = 400, 60
_LOWEST, _HIGHEST = -45, 308
"""Range of powers of ten on an axis: from the smallest magnitudes of gradients to the largest limits."""


class Point(NamedTuple):
    """Judged value."""

    step: int  # training step
    value: float  # the feature value; may be `inf` or `nan`
    limit: float  # first-level limit of that time; `inf` when there was none
    level: str  # `first`, `second`, or empty


def nearness(point: Point) -> float:
    """Returns value / limit: infinite for a value that is not finite, 0 without a limit."""
    if not math.isfinite(point.value):
        return math.inf
    return point.value / point.limit if 0 < point.limit < math.inf else 0.0


def plot_values(name: str, points: Sequence[Point]) -> Html:
    """Draws a checkpoint: values as a line, limits dashed, anomalies marked, over the steps on a log axis.

    Args:
        name: Text of the picture for screen readers.
        points: In the order in which they were judged, at least one.
    """
    return svg(name, WIDTH, HEIGHT, drawn_values(points), "plot")


def drawn_values(points: Sequence[Point]) -> list[Html]:
    """Returns the parts of the chart of a checkpoint, `WIDTH` wide and `HEIGHT` high."""
    low, high = _decades(points)
    first, last = min(point.step for point in points), max(point.step for point in points)
    area = Area(
        Scale(first, max(last, first + 1), _LEFT, _RIGHT), Scale(10.0**low, 10.0**high, _BOTTOM, _TOP, log=True)
    )

    def place(step: int, value: float) -> tuple[float, float]:
        return area.x(step), area.y(value) if math.isfinite(value) else _TOP - 10

    drawn = axes(area, "step", whole=True)
    for part in _parts(points):
        drawn += line([place(point.step, point.limit) for point in part if math.isfinite(point.limit)], "limit")
    for stretch in _thinned(_parts(points)):
        drawn += line([place(point.step, point.value) for point in stretch], "value")
    return drawn + [mark(point.level, *place(point.step, point.value), 4.5, _said(point)) for point in _worst(points)]


def _said(point: Point) -> str:
    limit = f", limit {number(point.limit)}" if math.isfinite(point.limit) else ""
    return f"step {point.step:,}: {number(point.value)}{limit} ({point.level} level)"


def _decades(points: Sequence[Point]) -> tuple[int, int]:
    seen = [number for point in points for number in (point.value, point.limit) if 0 < number < math.inf]
    if not seen:
        return 0, 1
    low = max(_LOWEST, math.floor(math.log10(min(seen))))
    high = min(_HIGHEST, math.ceil(math.log10(max(seen))))
    low = min(low, _HIGHEST - 1)
    return low, max(high, low + 1)


def _parts(points: Sequence[Point]) -> list[list[Point]]:
    """Splits values at the gap between two bundles, and where a training resumed from an earlier step."""
    parts: list[list[Point]] = []
    gaps = sorted(after.step - before.step for before, after in pairwise(points))
    usual = max(gaps[len(gaps) // 2], 1) if gaps else 1
    for point in points:
        if not parts or not 0 < point.step - parts[-1][-1].step <= 3 * usual:
            parts.append([])
        parts[-1].append(point)
    return parts


def _thinned(parts: Sequence[Sequence[Point]]) -> list[Sequence[Point]]:
    """Returns the largest point of each stretch, if there are very many points."""
    every = -(-sum(map(len, parts)) // _MOST_POINTS)
    if every <= 1:
        return list(parts)
    return [[max(part[i : i + every], key=_height) for i in range(0, len(part), every)] for part in parts]


def _height(point: Point) -> float:
    return point.value if math.isfinite(point.value) else math.inf


def _worst(points: Sequence[Point]) -> list[Point]:
    """Returns the anomalies to mark, the more serious ones last so that they are drawn on top."""
    marked = sorted((point for point in points if point.level), key=lambda point: (point.level != "first", point.step))
    return marked[:_MOST_MARKS][::-1]
