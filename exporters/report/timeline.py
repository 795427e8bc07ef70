"""The timeline of a run as SVG: one row per rank, one lane in it per sort of event, time in UTC."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from asd.event import Event
from asd.exporters.pictures.chart import Scale, mark, svg
from asd.exporters.pictures.markup import Html, number, tag, utc
from asd.exporters.report.data import SORTS, Rank, RunData, sort_of
from asd.exporters.report.words import counted

__all__ = ["Timeline", "draw_timeline"]

_WIDTH, _LEFT, _RIGHT, _HEAD = 1000, 208, 984, 34
_LANE, _ROW = 18, 40
"""Height of a lane, and the least height of a row."""
_APART = 13.0
"""Marks nearer than this are drawn as one."""
_MOST_ROWS, _MOST_TROUBLED = 16, 48
_STEPS = (*(x * 10**power for power in (-3, -2, -1, 0) for x in (1, 2, 5)), 10, 15, 30, 60, 120, 300, 600, 900, 1800)
_LONG_STEPS = (3600, 7200, 10800, 21600, 43200, 86400)
"""Seconds between two times that are written at the top."""
_LAST_SECOND = 253_402_300_000.0


class Timeline(NamedTuple):
    """A drawn timeline.

    Attributes:
        picture: The SVG; empty when no time is known.
        note: What it leaves out; empty when nothing.
    """

    picture: Html
    note: str


def draw_timeline(data: RunData) -> Timeline:
    """Draws when what happened to which rank."""
    events: dict[int, list[Event]] = {id(rank): [] for rank in data.ranks}
    places = {(rank.run, rank.rank, rank.host, rank.device): id(rank) for rank in data.ranks}
    for event in data.events:
        if 0 < event.time < _LAST_SECOND:
            events[places[event.run, event.rank, event.host, event.device]].append(event)
    whole = _span(data)
    if whole is None:
        return Timeline(Html(""), "")
    start, end = _window(whole, [event.time for row in events.values() for event in row])
    shown = _rows(data.ranks)
    notes = []
    if start > whole[0] or end < whole[1]:
        notes.append(f"The run is known from {utc(whole[0])} to {utc(whole[1])}; only the part with events is drawn.")
    if len(shown) < len(data.ranks):
        notes.append(f"{counted(len(data.ranks) - len(shown), 'more rank')} not drawn.")

    x = Scale(start, end, _LEFT, _RIGHT)
    drawn, top = [], float(_HEAD)
    for rank in shown:
        row, height = _row(rank, events[id(rank)], top, x)
        drawn.append(row)
        top += height
    axis = _axis(start, end, x, top)
    picture = svg("Events of each rank over time", _WIDTH, top + 10, [*axis, *drawn], "timeline")
    return Timeline(picture, " ".join(notes))


def _span(data: RunData) -> tuple[float, float] | None:
    times = [event.time for event in data.events]
    for rank in data.ranks:
        if rank.status is not None:
            times += [rank.status.started, rank.status.written]
    times = [seconds for seconds in times if 0 < seconds < _LAST_SECOND]
    if not times:
        return None
    start, end = min(times), max(times)
    return (start, end) if end - start >= 0.01 else (start - 0.5, end + 0.5)


def _window(whole: tuple[float, float], times: Sequence[float]) -> tuple[float, float]:
    """The whole run, or the part with events where that is only a small part of it."""
    start, end = whole
    length = max(times) - min(times) if times else 0.0
    if 1.0 <= length <= (end - start) / 12:
        return max(start, min(times) - length / 2), min(end, max(times) + length / 2)
    margin = (end - start) * 0.02
    return start - margin, end + margin


def _rows(ranks: Sequence[Rank]) -> list[Rank]:
    """The ranks to draw: the gravest of those with something to see, and so many others that there is a picture."""
    troubled = sorted((rank for rank in ranks if rank.troubled), key=lambda rank: not rank.count("first"))
    others = [rank for rank in ranks if not rank.troubled]
    chosen = {id(rank) for rank in troubled[:_MOST_TROUBLED] + others[: max(0, _MOST_ROWS - len(troubled))]}
    return [rank for rank in ranks if id(rank) in chosen]


def _row(rank: Rank, events: Sequence[Event], top: float, x: Scale) -> tuple[Html, float]:
    by_sort: dict[str, list[Event]] = {}
    for event in events:
        by_sort.setdefault(sort_of(event), []).append(event)
    lanes = [sort for sort in SORTS if sort in by_sort]
    height = max(_ROW, _LANE * len(lanes) + 10)
    name = f"rank {rank.rank} · {rank.device}" if rank.rank >= 0 else rank.device
    drawn = [
        tag("line", class_="grid", x1=0, x2=_WIDTH, y1=f"{top:.1f}", y2=f"{top:.1f}"),
        tag("text", tag("title", name), _cut(name, 27), class_="row", x=0, y=f"{top + 17:.1f}"),
        tag("text", tag("title", rank.host), _cut(rank.host, 30), class_="tick", x=0, y=f"{top + 32:.1f}"),
        *_activity(rank, top, height, x),
    ]
    first = top + height / 2 - _LANE * (len(lanes) - 1) / 2
    for i, sort in enumerate(lanes):
        for cluster in _clusters(by_sort[sort], x):
            size = 5.0 if len(cluster) == 1 else 6.0
            drawn.append(mark(sort, x(cluster[0].time), first + _LANE * i, size, _said(sort, cluster)))
    return tag("g", drawn), height


def _activity(rank: Rank, top: float, height: float, x: Scale) -> list[Html]:
    """The time in which the rank was watched, as a pale bar; a jagged end where it was lost."""
    status = rank.status
    if status is None or not 0 < status.started <= status.written < _LAST_SECOND:
        return []
    left, right = x(status.started), x(status.written)
    words = f"watched from {utc(status.started)} to {utc(status.written)}"
    box = {"x": f"{left:.1f}", "y": f"{top + 4:.1f}", "width": f"{max(right - left, 2):.1f}"}
    drawn = [tag("rect", tag("title", words), class_="watched", rx=4, height=f"{height - 8:.1f}", **box)]
    if rank.state == "lost":
        edge = f"{min(right, _RIGHT - 4.0):.1f}"  # inside the picture even when the loss is the last thing known
        drawn.append(tag("line", class_="lost", x1=edge, x2=edge, y1=f"{top + 3:.1f}", y2=f"{top + height - 3:.1f}"))
    return drawn


def _clusters(events: Iterable[Event], x: Scale) -> list[list[Event]]:
    clusters: list[list[Event]] = []
    edge = float("-inf")
    for event in events:
        place = x(event.time)
        if place - edge >= _APART:
            clusters.append([])
            edge = place
        clusters[-1].append(event)
    return clusters


def _said(sort: str, events: Sequence[Event]) -> str:
    first, last = events[0], events[-1]
    if len(events) > 1:
        steps = sorted({event.step for event in events if event.step})
        where = f", steps {steps[0]} to {steps[-1]}" if len(steps) > 1 else f", step {steps[0]}" if steps else ""
        return f"{len(events):,} {SORTS[sort][1]}{where}, {utc(first.time, digits=3)} to {utc(last.time, digits=3)}"
    step = f"step {first.step}" if first.step else ""
    words = [SORTS[sort][0], step, first.checkpoint, utc(first.time, digits=3)]
    if sort in ("first", "second"):
        limit = f", limit {number(first.limits[0])}" if first.limits else ""
        return ", ".join(filter(None, [*words, f"value {number(first.value)}{limit}"]))
    return ", ".join(filter(None, [*words, first.verdict or first.reason[:120]]))


def _axis(start: float, end: float, x: Scale, bottom: float) -> list[Html]:
    every = next((step for step in (*_STEPS, *_LONG_STEPS) if (end - start) / step <= 7), 0.0)
    if not every:
        every = 86400.0 * -(-(end - start) // (86400.0 * 7))
    drawn, day = [], ""
    for i in range(int(-(-start // every)), int(end // every) + 1):
        moment = datetime.fromtimestamp(round(i * every, 3), timezone.utc)
        place = x(i * every)
        drawn.append(tag("line", class_="grid", x1=f"{place:.1f}", x2=f"{place:.1f}", y1=_HEAD - 4, y2=f"{bottom:.1f}"))
        if place > _RIGHT - 24:
            continue  # its label would be cut
        drawn.append(tag("text", _clock(moment, every), class_="tick middle", x=f"{place:.1f}", y=_HEAD - 8))
        if moment.date().isoformat() != day:
            day = moment.date().isoformat()
            drawn.append(tag("text", day, class_="tick middle", x=f"{place:.1f}", y=_HEAD - 21))
    return drawn


def _clock(moment: datetime, every: float) -> str:
    if every < 1:
        return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}"
    return f"{moment:%H:%M:%S}" if every < 60 else f"{moment:%H:%M}"


def _cut(text: str, room: int) -> str:
    """The beginning of `text` that fits into `room` Latin letters; Chinese characters take two."""
    used = 0
    for i, character in enumerate(text):
        used += 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used > room:
            return text[: max(1, i - 1)] + "…"
    return text
