"""Charts of feature values: the values, their limits, and the steps in which a value broke its limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from asd.exporters.pictures.chart import Area, Scale, axes, label, line, mark, rule, save_picture, svg
from asd.exporters.pictures.markup import Html, number, tag
from asd.verdict import Level

_WIDTH, _HEIGHT = 380, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 362.0, 24.0, 156.0
"""Edges of the drawing inside the picture; values that are not finite are drawn above its top."""
_MOST_POINTS, _MOST_MARKS = 400, 60
_LOWEST, _HIGHEST = -45, 308
"""Range of powers of ten on an axis: from the smallest magnitudes of gradients to the largest limits."""
_LEVELS = {Level.ERROR: "first", Level.WARNING: "second", Level.NORMAL: ""}

History = Mapping[str, Sequence[tuple[int, float, float, Level]]]
"""Per checkpoint `(step, value, limit, level)`."""


class Point(NamedTuple):
    """Judged value.

    Attributes:
        step: Training step.
        value: The feature value; may be `inf` or `nan`.
        limit: First-level limit of that time; `inf` when there was none.
        level: `first`, `second`, or empty.
    """

    step: int
    value: float
    limit: float
    level: str


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
    return svg(name, _WIDTH, _HEIGHT, _drawn(points), "plot")


def draw_history(path: Path, history: History, *, losses: Mapping[str, Sequence[float]], title: str) -> None:
    """Writes an SVG file with the loss curves on top, if there are any, and a chart for each checkpoint below.

    Args:
        path: The file; its folder must exist.
        history: Judged values.
        losses: Loss curves by name; NaN where a step is missing.
        title: Title above the picture.

    Raises:
        OSError: The file cannot be written.
    """
    charts = {
        name: [Point(step, value, limit, _LEVELS[level]) for step, value, limit, level in values]
        for name, values in history.items()
        if values
    }
    marked = sorted({point.step for points in charts.values() for point in points if point.level == "first"})
    curves = {name: list(enumerate(values, start=1)) for name, values in losses.items()}
    drawn, height = draw_losses(curves, marked, width=2 * _WIDTH) if losses else ([], 0.0)
    for i, (name, points) in enumerate(charts.items()):
        place = f"translate({_WIDTH * (i % 2)} {height + (_HEIGHT + 24) * (i // 2):.0f})"
        chart = [label(name if len(name) <= 52 else f"…{name[-51:]}", 12, 14, "row"), *_drawn(points)]
        drawn.append(tag("g", chart[0], tag("g", chart[1:], transform="translate(0 14)"), transform=place))
    height += (_HEIGHT + 24) * math.ceil(len(charts) / 2)
    save_picture(path, title, 2 * _WIDTH, max(height, 40), drawn)


def draw_losses(
    curves: Mapping[str, Sequence[tuple[int, float]]], marked: Sequence[int], *, width: float
) -> tuple[list[Html], float]:
    """Draws loss curves over the steps with their names; returns the height of the chart too.

    Args:
        curves: By name `(step, loss)`; the first one is drawn broad and pale, under the others.
        marked: Steps of first-level anomalies.
        width: Width of the chart.
    """
    # A range of floats ends at 1.8e308; a loss that large does not fit on an axis.
    known = {name: [(step, loss) for step, loss in curve if abs(loss) < 1e300] for name, curve in curves.items()}
    steps = [step for curve in known.values() for step, _ in curve] or [1]
    values = [loss for curve in known.values() for _, loss in curve] or [0.0]
    low, high = min(values), max(values)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 1.0
    head = 18.0 * len(known) + 24
    area = Area(
        Scale(min(steps), max(max(steps), min(steps) + 1), _LEFT, width - 18),
        Scale(low - margin, high + margin, head + 140, head),
    )
    drawn = [*axes(area, "step", "loss", whole=True), *(rule(area, step, "alarm", f"step {step}") for step in marked)]
    for i, (name, curve) in enumerate(known.items()):
        kind = f"curve{min(i, 4)}"
        drawn += line([(area.x(step), area.y(loss)) for step, loss in curve], kind)
        drawn += [*line([(_LEFT + 40, 14 + 18 * i), (_LEFT + 64, 14 + 18 * i)], kind)]
        drawn.append(label(name, _LEFT + 72, 18 + 18 * i))
    return drawn, head + 180


def _drawn(points: Sequence[Point]) -> list[Html]:
    low, high = _decades(points)
    first, last = min(point.step for point in points), max(point.step for point in points)
    area = Area(
        Scale(first, max(last, first + 1), _LEFT, _RIGHT),
        Scale(10.0**low, 10.0**high, _BOTTOM, _TOP, log=True),
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
