"""A picture of what a rule's tests have seen: how often which score came, and where the thresholds lie."""

from __future__ import annotations

from pathlib import Path

from asd.exporters.pictures.chart import Area, Scale, axes, label, rule, save_picture
from asd.exporters.pictures.markup import Html, tag
from asd.rules.readings.kinds import KINDS
from asd.rules.readings.reading import AVERAGED, GRADIENT, OUTPUT, WEIGHT_GRADIENT
from asd.tuning import Proposal
from asd.tuning import ProposedThreshold as Test
from asd.tuning.scores import BINS

__all__ = ["draw_tuning"]

_STYLES = {OUTPUT: "steps1", GRADIENT: "steps2", WEIGHT_GRADIENT: "steps3", AVERAGED: "steps4"}
_LOWEST = 0.5
"""Bottom of the axis, so that a single value shows."""
_WIDTH, _HEIGHT, _LEGEND = 1000.0, 300.0, 640.0


def draw_tuning(path: Path, proposal: Proposal, *, title: str) -> None:
    """Writes an SVG file with one histogram for each test.

    Args:
        path: The file; its folder must be there.
        proposal: What was proposed.
        title: Above the picture.

    Raises:
        OSError: The file can't be written. What was there before is as it was.
    """
    charts = [
        tag("g", _chart(test), transform=f"translate(0 {_HEIGHT * i:.0f})") for i, test in enumerate(proposal.tests)
    ]
    save_picture(path, title, _WIDTH, _HEIGHT * len(charts), charts)


def _chart(test: Test) -> list[Html]:
    histogram = test.scores.histogram
    levels = [*test.today, *(test.pair or ()), *(extreme.score for extreme in test.drivers)]
    lowest = min((place for _, place in histogram), default=0)
    area = Area(
        Scale(min(2.0 ** (lowest / BINS), *levels) / 2, 2 * max(levels), 70, _LEGEND - 20, log=True),
        Scale(_LOWEST, 2.0 * max(histogram.values(), default=1), 250, 30, log=True),
    )
    drawn = axes(area, test.test.what, "values")
    names: list[tuple[str, str]] = []
    for kind, style in _STYLES.items():
        places = [place for of, place in histogram if of == kind]
        if places:
            drawn.append(_steps(area, {place: histogram[kind, place] for place in places}, style))
            names.append((style, KINDS[kind].name))
    if not histogram:
        drawn.append(label("no value was judged by this test", (area.x.start + area.x.end) / 2, 140, "middle"))
    for value, style, words in _thresholds(test):
        names.append((style, words))
        drawn.append(rule(area, value, style, words))
    for i, (style, words) in enumerate(names):
        drawn.append(tag("line", class_=style, x1=_LEGEND, x2=_LEGEND + 24, y1=40 + 20 * i, y2=40 + 20 * i))
        drawn.append(label(words, _LEGEND + 32, 44 + 20 * i))
    if test.drivers:
        drawn.append(label(test.drivers[0].checkpoint[-50:], _LEGEND + 32, 44 + 20 * len(names)))
    return drawn


def _thresholds(test: Test) -> list[tuple[float, str, str]]:
    """The scores to mark: the thresholds of today, those that are proposed, and the largest score there was."""
    found: list[tuple[float, str, str]] = []
    for pair, style in ((test.today, "today"), (test.pair, "proposed")):
        for level, of in zip(pair or (), ("first", "second"), strict=False):
            found.append((level, f"{style} {of}", f"{style}, {of} level: {level}"))
    for top in test.drivers[:1]:
        found.append((top.score, "largest", f"largest: {top.score:.4g}, step {top.step}, rank {top.rank}"))
    return found


def _steps(area: Area, counts: dict[int, int], style: str) -> Html:
    """The outline of a histogram, from its first to its last bin."""
    path = f"M{area.x(2.0 ** (min(counts) / BINS)):.1f} {area.y.start:.1f}"
    for place in range(min(counts), max(counts) + 1):
        path += f"V{area.y(counts.get(place, 0)):.1f}H{area.x(2.0 ** ((place + 1) / BINS)):.1f}"
    return tag("path", class_=style, d=f"{path}V{area.y.start:.1f}Z")
