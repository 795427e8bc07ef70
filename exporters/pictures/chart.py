"""Parts of charts as SVG: scales with ticks, axes, lines, marks; and whole pictures as files."""

import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from asd.exporters.pictures.markup import Html, tag
from asd.rundir.disk import write_whole

STYLE = Path(__file__).with_name("chart.css").read_text(encoding="utf-8")
"""Style of charts, in a page and in a separate file."""
SPACE = "http://www.w3.org/2000/svg"
_TICKS = 5
_LETTER = 4.0  # half the width of a digit


class Scale(NamedTuple):
    """Scale of numbers along one axis."""

    low: float  # the number at `start`
    high: float  # the number at `end`; larger than `low`
    start: float  # position of `low` in the picture
    end: float  # position of `high`
    log: bool = False  # whether equal distances are equal factors; then `low` must be positive

    def __call__(self, value: float) -> float:
        """Returns the position of `value`; values outside the scale are at the edge."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        if self.log:
            value = math.log10(value) if value > 0 else low
        share = (min(max(value, low), high) - low) / (high - low)
        return self.start + (self.end - self.start) * share

    def ticks(self, *, whole: bool = False) -> list[tuple[float, str]]:
        """Returns the numbers beside the axis, each with its text; only whole ones if `whole`."""
        if self.log:
            least, most = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            powers = range(least, most + 1, max(1, math.ceil((most - least) / _TICKS)))
            return [(10.0**power, _power(power)) for power in powers]
        every = _nice((self.high - self.low) / _TICKS, whole=whole)
        first, last = math.ceil(self.low / every - 1e-9), math.floor(self.high / every + 1e-9)
        return [(i * every, f"{i * every:,.6g}" if every < 1 else f"{i * every:,.0f}") for i in range(first, last + 1)]


class Area(NamedTuple):
    """Coordinate system: its horizontal and its vertical scale."""

    x: Scale
    y: Scale


def axes(area: Area, across: str, up: str = "", *, whole: bool = False) -> list[Html]:
    """Draws the axes with their numbers and names; `whole` asks for whole numbers on the horizontal one."""
    x, y = area
    drawn = []
    for value, words in y.ticks():
        height = y(value)
        drawn.append(tag("line", class_="grid", x1=x.start, x2=x.end, y1=f"{height:.1f}", y2=f"{height:.1f}"))
        drawn.append(label(words, x.start - 6, height + 4, "tick end"))
    drawn.append(tag("line", class_="axis", x1=x.start, x2=x.end, y1=y.start, y2=y.start))
    for value, words in x.ticks(whole=whole):
        place = x(value)
        drawn.append(tag("line", class_="axis", x1=f"{place:.1f}", x2=f"{place:.1f}", y1=y.start, y2=y.start + 4))
        inside = min(place, x.end + 18 - _LETTER * len(words))  # never cut at the right edge
        drawn.append(label(words, inside, y.start + 17, "tick middle"))
    drawn.append(label(across, x.end, y.start + 31, "tick end"))
    return [*drawn, label(up, x.start, y.end - 8, "tick")] if up else drawn


def line(places: Sequence[tuple[float, float]], kind: str) -> list[Html]:
    """Draws a line without the middle points of a level stretch; a single point becomes a dot."""
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


def rule(area: Area, value: float, kind: str, words: str = "") -> Html:
    """Draws a vertical line at `value`."""
    place = f"{area.x(value):.1f}"
    about = [tag("title", words)] if words else []
    return tag("line", about, class_=kind, x1=place, x2=place, y1=area.y.start, y2=area.y.end)


def label(words: str, x: float, y: float, kind: str = "tick") -> Html:
    """Draws one line of text."""
    return tag("text", words, class_=kind, x=f"{x:.1f}", y=f"{y:.1f}")


def mark(sort: str, x: float, y: float, size: float = 5.0, title: str = "") -> Html:
    """Draws the symbol of a sort of event; each has its own shape, so colour is never needed.

    Args:
        sort: `first`, `second`, `follower`, `problem`, `replay`, `isolation`, `recovery` or `stress`.
        x: Centre of the symbol.
        y: Centre of the symbol.
        size: Half its width.
        title: Shown while the pointer rests on the symbol.
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


def svg(name: str, width: float, height: float, drawn: Iterable[Html], kind: str) -> Html:
    """Returns a picture within a page; `name` is its text for screen readers."""
    box = f"0 0 {width:.0f} {height:.0f}"
    return tag("svg", tag("title", name), drawn, viewBox=box, role="img", class_=kind, xmlns=SPACE)


def save_picture(path: Path, title: str, width: float, height: float, drawn: Iterable[Html]) -> None:
    """Writes a picture as an SVG file with `title` on top; it looks the same in every program."""
    titles = wrapped(title, int(width / 8))
    top = 18.0 * len(titles) + 12
    light = dict(re.findall(r"(--[\w-]+): ([^;]+);", STYLE.partition("}")[0]))  # not every program knows variables
    style = re.sub(r"var\((--[\w-]+)\)", lambda found: light[found[1]], STYLE.partition("/* charts */")[2])
    content = [
        tag("style", Html(f"text {{ font-family: sans-serif; font-size: 12px; }}{style}")),
        tag("rect", class_="paper", width=f"{width:.0f}", height=f"{top + height:.0f}"),
        *(label(words, 12, 20 + 18 * i, "row") for i, words in enumerate(titles)),
        tag("g", drawn, transform=f"translate(0 {top:.0f})"),
    ]
    size = {"width": f"{width:.0f}", "height": f"{top + height:.0f}"}
    box = f"0 0 {width:.0f} {top + height:.0f}"
    write_whole(path, tag("svg", tag("title", title), content, viewBox=box, xmlns=SPACE, **size) + "\n")


def wrapped(words: str, width: int) -> list[str]:
    """Returns `words` as lines of at most `width` letters; a longer word has its own line."""
    lines = [""]
    for word in words.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -3 < power < 4 else f"1e{power}"


def _nice(rough: float, *, whole: bool) -> float:
    """Returns the smallest of 1, 2, 5, 10, 20, ... and of their tenths that is at least `rough`."""
    power = 10.0 ** math.floor(math.log10(rough))
    found = next((power * factor for factor in (1, 2, 5) if power * factor >= rough), power * 10)
    return max(found, 1.0) if whole else found
