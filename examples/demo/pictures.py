"""Pictures of the demo: losses and values of a training, and jobs with the activity of each device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from asd.event import Event
from asd.exporters.pictures.chart import Area, Scale, axes, label, line, mark, rule, save_picture, wrapped
from asd.exporters.pictures.markup import Html, tag
from asd.exporters.pictures.values import HEIGHT, WIDTH, Point, drawn_values
from asd.supervisor.record import Attempt
from asd.verdict import Level

_WIDTH, _ROW = 420.0, 46.0
_LEVELS = {Level.ERROR: "first", Level.WARNING: "second", Level.NORMAL: ""}
History = Mapping[str, Sequence[tuple[int, float, float, Level]]]
"""Per checkpoint `(step, value, limit, level)`."""


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
    drawn, height = draw_losses(curves, marked, width=2 * WIDTH) if losses else ([], 0.0)
    for i, (name, points) in enumerate(charts.items()):
        place = f"translate({WIDTH * (i % 2)} {height + (HEIGHT + 24) * (i // 2):.0f})"
        chart = [label(name if len(name) <= 52 else f"…{name[-51:]}", 12, 14, "row"), *drawn_values(points)]
        drawn.append(tag("g", chart[0], tag("g", chart[1:], transform="translate(0 14)"), transform=place))
    height += (HEIGHT + 24) * math.ceil(len(charts) / 2)
    save_picture(path, title, 2 * WIDTH, max(height, 40), drawn)


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
        Scale(min(steps), max(max(steps), min(steps) + 1), 46, width - 18),
        Scale(low - margin, high + margin, head + 140, head),
    )
    drawn = [*axes(area, "step", "loss", whole=True), *(rule(area, step, "alarm", f"step {step}") for step in marked)]
    for i, (name, curve) in enumerate(known.items()):
        kind = f"curve{min(i, 4)}"
        drawn += line([(area.x(step), area.y(loss)) for step, loss in curve], kind)
        drawn += [*line([(46 + 40, 14 + 18 * i), (46 + 64, 14 + 18 * i)], kind)]
        drawn.append(label(name, 46 + 72, 18 + 18 * i))
    return drawn, head + 180


class Lane(NamedTuple):
    """Column of one job.

    Attributes:
        title: Title, a sentence.
        losses: `(seconds since the epoch, step, loss)`, attempt after attempt.
        attempts: Attempts recorded by the supervisor.
        events: Events of all ranks and of the supervisor.
    """

    title: str
    losses: Sequence[tuple[float, int, float]]
    attempts: Sequence[Attempt]
    events: Sequence[Event]


def draw_jobs(path: Path, lanes: Mapping[str, Lane]) -> None:
    """Writes an SVG file with a column for each job; the first job's losses are drawn under those of all others.

    Args:
        path: The file; its folder must exist.
        lanes: The jobs by name.

    Raises:
        OSError: The file cannot be written.
    """
    reference = next(iter(lanes.values()))
    columns, most = [], 0.0
    for i, lane in enumerate(lanes.values()):
        column, height = _column(reference, lane)
        columns.append(tag("g", column, transform=f"translate({_WIDTH * i:.0f} 0)"))
        most = max(most, height)
    save_picture(path, "Jobs: the loss of rank 0, and what each device did", _WIDTH * len(lanes), most, columns)


def _column(reference: Lane, lane: Lane) -> tuple[list[Html], float]:
    curves = {"without a fault": [(step, loss) for _, step, loss in reference.losses]}
    for i, attempt in enumerate(lane.attempts if lane is not reference else ()):
        began, ended = attempt.began, attempt.ended or float("inf")
        curves[f"attempt {i + 1}"] = [(step, loss) for time, step, loss in lane.losses if began <= time <= ended]
    title = [label(words, 12, 16 + 16 * i, "row") for i, words in enumerate(wrapped(lane.title, 52))]
    marked = sorted({event.step for event in lane.events if _is_alarm(event)})
    above, height = draw_losses(curves, marked, width=_WIDTH)
    top = 16.0 * len(title) + 12
    below, devices = _devices(lane)
    parts = [
        *title,
        tag("g", above, transform=f"translate(0 {top:.0f})"),
        tag("g", below, transform=f"translate(0 {top + height:.0f})"),
    ]
    return parts, top + height + devices


def _devices(lane: Lane) -> tuple[list[Html], float]:
    """Draws a row for each device with a box for each of its attempts; returns the height of all rows too."""
    begin = min((attempt.began for attempt in lane.attempts), default=0.0)
    end = max((attempt.ended for attempt in lane.attempts), default=begin)
    devices = sorted({device for attempt in lane.attempts for device in attempt.devices} | {0, 1, 2})
    bottom = 20 + _ROW * len(devices)
    x = Scale(0, max(end - begin, 1) * 1.02, 70, _WIDTH - 18)
    rows = {device: 20 + _ROW * (i + 0.5) for i, device in enumerate(devices)}
    drawn = [label(f"device {device}", x.start - 6, row + 4, "tick end") for device, row in rows.items()]
    for i, attempt in enumerate(lane.attempts):
        ended, kind = attempt.ended or end, f"box{i % 4 + 1}"
        for rank, device in enumerate(attempt.devices):
            drawn += _box(x, attempt.began - begin, ended - begin, rows[device], kind, f"rank {rank}")
    for event in lane.events:
        number = event.device.partition(":")[2]
        if number.isdigit() and int(number) in rows:
            drawn += _event(x, event, event.time - begin, end - begin, rows[int(number)])
    drawn.append(tag("line", class_="axis", x1=x.start, x2=x.end, y1=bottom, y2=bottom))
    drawn += [label(words, x(value), bottom + 17, "tick middle") for value, words in x.ticks()]
    return [*drawn, label("seconds", x.end, bottom + 31, "tick end")], bottom + 44


def _event(x: Scale, event: Event, at: float, end: float, row: float) -> list[Html]:
    if _is_alarm(event):
        return [mark("first", x(at), row, title=f"step {event.step}")]
    if event.kind == "replay":
        return [label(event.verdict, x(at), row - 16, "said middle")]
    return _box(x, at, end, row, "isolated", "isolated") if event.kind == "isolation" else []


def _box(x: Scale, begin: float, end: float, row: float, kind: str, words: str) -> list[Html]:
    left, right = x(begin), x(end)
    box = tag("rect", class_=kind, x=f"{left:.1f}", y=f"{row - 11:.1f}", width=f"{right - left:.1f}", height=22)
    return [box, label(words, (left + right) / 2, row + 4, "middle")]


def _is_alarm(event: Event) -> bool:
    return event.kind == "anomaly" and event.level is Level.ERROR
