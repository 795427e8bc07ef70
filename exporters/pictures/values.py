"""A picture of the feature values: what they were, where their limits lay, and when one broke its limit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from asd.event import Event
from asd.verdict import Level

__all__ = ["draw_history"]

Point = tuple[int, float, float, Level]
History = Mapping[str, Sequence[Point]]
_TOP, _BOTTOM = 1e38, 1e-12
"""The axis ends here; inf and nan are drawn at the top."""


def draw_history(
    path: Path, history: History, events: Sequence[Event], *, losses: Mapping[str, Sequence[float]], title: str
) -> None:
    """Writes a PNG with the loss curves above, if there are any, and every checkpoint's values and limits below.

    Args:
        path: The PNG file; its folder must be there.
        history: Per checkpoint `(step, value, limit, level)`.
        events: First-level events among them are marked.
        losses: Loss curves by name; NaN where a step is missing.
        title: Above the picture.
    """
    # Names and regular expressions hold dollar signs, which are no formula.
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "text.parse_math": False}):
        figure = Figure(figsize=(10, 7.5), layout="constrained")
        if losses:
            above, below = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2.2))
            _draw_losses(above, losses)
        else:
            above = below = figure.subplots()
        _draw_values(below, history)
        errors = [event for event in events if event.level is Level.ERROR]
        for axes in {above, below}:
            for step in sorted({event.step for event in errors}):
                axes.axvline(step, color="crimson", linewidth=1, alpha=0.6)
        if errors:
            _mark(below, errors[0])
        figure.suptitle(title, fontsize=11)
        figure.savefig(path, dpi=110)


def _draw_losses(axes: Axes, losses: Mapping[str, Sequence[float]]) -> None:
    widths = (4.0, 1.6, 1.2)
    for i, (name, values) in enumerate(losses.items()):
        axes.plot(
            range(1, len(values) + 1), values, label=name, linewidth=widths[min(i, 2)], alpha=0.5 if i == 0 else 1
        )
    axes.set_ylabel("loss")
    axes.legend(loc="upper right")


def _draw_values(axes: Axes, history: History) -> None:
    colors = mpl.colormaps["viridis"]
    for i, (name, values) in enumerate(history.items()):
        color = colors(i / max(1, len(history)))
        for j, part in enumerate(_parts(values)):
            steps = [step for step, *_ in part]
            label = name if j == 0 else None
            axes.plot(steps, [_drawable(value) for _, value, _, _ in part], color=color, linewidth=1.3, label=label)
            limits = [_drawable(limit) if math.isfinite(limit) else math.nan for _, _, limit, _ in part]
            axes.plot(steps, limits, color=color, linewidth=1, linestyle="--", alpha=0.7)
    axes.plot([], [], color="gray", linestyle="--", label="first-level limits")
    axes.set_yscale("log")
    # The usual formatters write formulas, which are off.
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0e}")
    axes.yaxis.set_minor_formatter("")
    axes.set_xlabel("step")
    axes.set_ylabel("feature value")
    axes.legend(loc="center left", fontsize=8)


def _parts(values: Sequence[Point]) -> list[list[Point]]:
    """The values between one resume and the next; a resumed training makes some steps again."""
    parts: list[list[Point]] = []
    for point in values:
        if not parts or point[0] <= parts[-1][-1][0]:
            parts.append([])
        parts[-1].append(point)
    return parts


def _mark(axes: Axes, event: Event) -> None:
    value = _drawable(event.value)
    axes.plot([event.step], [value], "o", color="crimson", markersize=9, fillstyle="none", markeredgewidth=2)
    axes.annotate(
        f"step {event.step}, {event.checkpoint}\n"
        f"value {event.value:.3g}, limit {event.limits[0] if event.limits else math.inf:.3g}\n"
        f"{event.code}: update {'refused' if event.refused else 'applied'}",
        (event.step, value), xytext=(-12, -6), textcoords="offset points", ha="right", va="top", color="crimson",
    )  # fmt: skip


def _drawable(value: float) -> float:
    if not math.isfinite(value):
        return _TOP
    return min(max(value, _BOTTOM), _TOP)
