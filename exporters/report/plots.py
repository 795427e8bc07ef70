"""Plots of feature values and their limits as SVG: one small picture per checkpoint, readable without colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from asd.exporters.report.bundles import Point
from asd.exporters.report.html.markup import Html, number, tag

__all__ = ["mark", "nearness", "plot_ratio", "plot_values"]

_WIDTH, _HEIGHT = 380, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 362, 24, 156
"""Edges of the drawing inside the picture; values that are not finite are drawn above its top."""
_MOST_POINTS, _MOST_MARKS = 400, 60
_LOWEST, _HIGHEST = -45, 308
"""Powers of ten an axis may show: the smallest magnitudes a gradient can have, and the largest a limit can."""


def mark(sort: str, x: float, y: float, size: float = 5.0, title: str = "") -> Html:
    """The symbol of a sort of event; each has a shape of its own, so colour is never needed.

    Args:
        sort: One of `asd.exporters.report.data.SORTS`.
        x: Its middle.
        y: Its middle.
        size: Half its width.
        title: Shown while the pointer rests on it.
    """
    s = size
    shapes = {
        "first": f"M0 {-s * 1.3:.1f}L{s * 1.3:.1f} 0L0 {s * 1.3:.1f}L{-s * 1.3:.1f} 0Z",
        "second": f"M0 {-s:.1f}L{s:.1f} {s * 0.8:.1f}L{-s:.1f} {s * 0.8:.1f}Z",
        "follower": f"M{-s:.1f} 0a{s:.1f} {s:.1f} 0 1 0 {2 * s:.1f} 0a{s:.1f} {s:.1f} 0 1 0 {-2 * s:.1f} 0Z",
        "problem": f"M{-s:.1f} {-s:.1f}L{s:.1f} {s:.1f}M{-s:.1f} {s:.1f}L{s:.1f} {-s:.1f}",
        "replay": f"M{-s:.1f} {-s:.1f}H{s:.1f}V{s:.1f}H{-s:.1f}Z",
        "isolation": f"M{-s:.1f} {-s:.1f}H{s:.1f}V{s:.1f}H{-s:.1f}ZM{-s * 0.6:.1f} 0H{s * 0.6:.1f}",
        "recovery": f"M0 {-s:.1f}V{s:.1f}M{-s:.1f} 0H{s:.1f}",
        "stress": f"M{-s:.1f} {-s:.1f}H{s:.1f}L{-s:.1f} {s:.1f}H{s:.1f}Z",
    }
    about = [tag("title", title)] if title else []
    return tag("path", about, class_=f"mark {sort}", d=shapes[sort], transform=f"translate({x:.1f} {y:.1f})")


def nearness(point: Point) -> float:
    """How near a value came to its limit: value / limit, infinite for one that is not finite, 0 without a limit."""
    if not math.isfinite(point.value):
        return math.inf
    return point.value / point.limit if 0 < point.limit < math.inf else 0.0


def plot_values(name: str, points: Sequence[Point]) -> Html:
    """One checkpoint: its values as a line, its limits dashed, its anomalies marked, over the steps on a log axis.

    Args:
        name: What the picture is called for those who can't see it.
        points: In the order of steps, at least one.
    """
    low, high = _decades(points)
    first, last = points[0].step, max(points[-1].step, points[0].step + 1)

    def x(step: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (step - first) / (last - first)

    def y(value: float) -> float:
        if not math.isfinite(value):
            return float(_TOP - 10)
        exponent = math.log10(value) if value > 0 else low
        return _BOTTOM - (_BOTTOM - _TOP) * (min(max(exponent, low), high) - low) / (high - low)

    drawn = [
        *_value_axis(low, high, y),
        *_step_axis(first, points[-1].step, x),
        *_line([(x(point.step), y(point.limit)) for point in points if math.isfinite(point.limit)], "limit"),
    ]
    for part in _parts(points):
        drawn += _line([(x(point.step), y(point.value)) for point in part], "value")
    drawn += [
        mark(point.level, x(point.step), y(point.value), 4.5, _said(point)) for point in _worst(points) if point.level
    ]
    return tag(
        "svg", tag("title", name), drawn, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", class_="plot",
        xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip


def plot_ratio(ratio: float, name: str) -> Html:
    """A bar from 1e-9 to 10 times the limit on a log axis, with the limit itself as a line."""
    low, high, width = -9.0, 1.0, 200.0
    share = 1.0 if not math.isfinite(ratio) else (math.log10(max(ratio, 1e-30)) - low) / (high - low)
    at_limit = width * (0 - low) / (high - low)
    return tag(
        "svg", tag("title", name),
        tag("rect", class_="track", x=0, y=3, width=f"{width:.0f}", height=8),
        tag("rect", class_="bar over" if not ratio <= 1 else "bar", x=0, y=3,
            width=f"{width * min(max(share, 0.005), 1):.1f}", height=8),
        tag("line", class_="bound", x1=f"{at_limit:.1f}", x2=f"{at_limit:.1f}", y1=0, y2=14),
        viewBox=f"0 0 {width:.0f} 14", role="img", class_="ratio", xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip


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


def _value_axis(low: int, high: int, y: Callable[[float], float]) -> list[Html]:
    every = max(1, math.ceil((high - low) / 5))
    drawn = []
    for exponent in range(low, high + 1, every):
        height = y(10.0**exponent)
        drawn.append(tag("line", class_="grid", x1=_LEFT, x2=_RIGHT, y1=f"{height:.1f}", y2=f"{height:.1f}"))
        label = f"{10.0**exponent:g}" if -3 < exponent < 4 else f"1e{exponent}"
        drawn.append(tag("text", label, class_="tick end", x=_LEFT - 6, y=f"{height + 4:.1f}"))
    return drawn


def _step_axis(first: int, last: int, x: Callable[[float], float]) -> list[Html]:
    every = _nice((last - first) / 5)
    drawn = [tag("line", class_="axis", x1=_LEFT, x2=_RIGHT, y1=_BOTTOM, y2=_BOTTOM)]
    for step in range(-(-first // every) * every, last + 1, every):
        place = x(step)
        drawn.append(tag("line", class_="axis", x1=f"{place:.1f}", x2=f"{place:.1f}", y1=_BOTTOM, y2=_BOTTOM + 4))
        label = f"{step:,}"
        at = min(place, _WIDTH - 4.0 * len(label))  # never cut at the right edge
        drawn.append(tag("text", label, class_="tick middle", x=f"{at:.1f}", y=_BOTTOM + 17))
    drawn.append(tag("text", "step", class_="tick end", x=_RIGHT, y=_HEIGHT - 3))
    return drawn


def _nice(rough: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... that is at least `rough`."""
    power = 1
    while power * 5 < rough:
        power *= 10
    return next((power * factor for factor in (1, 2, 5) if power * factor >= rough), power * 10)


def _parts(points: Sequence[Point]) -> list[list[Point]]:
    """The values without the gap between two bundles; of very many, the largest of each stretch."""
    parts: list[list[Point]] = []
    gaps = sorted(after.step - before.step for before, after in pairwise(points))
    usual = gaps[len(gaps) // 2] if gaps else 1
    for point in points:
        if not parts or point.step - parts[-1][-1].step > 3 * usual:
            parts.append([])
        parts[-1].append(point)
    every = -(-len(points) // _MOST_POINTS)
    return [
        [max(part[i : i + every], key=_height) for i in range(0, len(part), every)] if every > 1 else part
        for part in parts
    ]


def _height(point: Point) -> float:
    return point.value if math.isfinite(point.value) else math.inf


def _worst(points: Sequence[Point]) -> list[Point]:
    """The anomalies to mark, the graver ones last so that they lie on top."""
    marked = sorted((point for point in points if point.level), key=lambda point: (point.level != "first", point.step))
    return marked[:_MOST_MARKS][::-1]


def _line(places: Sequence[tuple[float, float]], kind: str) -> list[Html]:
    """A line without the points in the middle of a level stretch; one point alone is a dot."""
    if not places:
        return []
    if len(places) == 1:
        return [tag("circle", class_=f"{kind} dot", cx=f"{places[0][0]:.1f}", cy=f"{places[0][1]:.1f}", r=2)]
    texts = [(f"{x:.1f}", f"{y:.1f}") for x, y in places]
    kept = [
        texts[i]
        for i in range(len(texts))
        if i in (0, len(texts) - 1) or not texts[i - 1][1] == texts[i][1] == texts[i + 1][1]
    ]
    return [tag("polyline", class_=kind, points=" ".join(",".join(pair) for pair in kept))]
