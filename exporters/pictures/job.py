"""A picture of jobs that were supervised: the loss step by step, and below what each device did when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from asd.event import Event
from asd.supervisor.record import Attempt
from asd.verdict import Level

__all__ = ["Lane", "draw_jobs"]

_COLORS = ("#4477aa", "#228833", "#aa3377", "#ccbb44")
_BAD, _GRAY = "crimson", "#999999"


class Lane(NamedTuple):
    """One job.

    Attributes:
        title: A sentence.
        losses: `(seconds since the epoch, step, loss)`, attempt after attempt.
        attempts: As the supervisor recorded them.
        events: Of all ranks and of the supervisor.
    """

    title: str
    losses: Sequence[tuple[float, int, float]]
    attempts: Sequence[Attempt]
    events: Sequence[Event]


def draw_jobs(path: Path, lanes: Mapping[str, Lane]) -> None:
    """Writes a PNG with a column for each job; the first is drawn behind the losses of all others.

    Args:
        path: The PNG file; its folder must be there.
        lanes: The jobs by name.
    """
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "text.parse_math": False}):
        figure = Figure(figsize=(4.2 * len(lanes), 5.6), layout="constrained")
        axes = figure.subplots(2, len(lanes), squeeze=False, height_ratios=(1.3, 1))
        reference = next(iter(lanes.values()))
        for above, lane in zip(axes[0], lanes.values(), strict=True):
            above.plot([step for _, step, _ in reference.losses], [loss for _, _, loss in reference.losses],
                       color=_GRAY, linewidth=5, alpha=0.4, label="without a fault")  # fmt: skip
            if lane is not reference:
                _draw_losses(above, lane)
            above.set_title(_wrapped(lane.title), fontsize=9)
            above.set_xlabel("step")
            above.legend(loc="upper right", fontsize=8)
        for below, lane in zip(axes[1], lanes.values(), strict=True):
            _draw_devices(below, lane)
        axes[0][0].set_ylabel("loss of rank 0")
        axes[1][0].set_ylabel("device")
        figure.savefig(path, dpi=110)


def _draw_losses(axes: Axes, lane: Lane) -> None:
    for i, attempt in enumerate(lane.attempts):
        ended = attempt.ended or float("inf")
        own = [(step, loss) for time, step, loss in lane.losses if attempt.began <= time <= ended]
        axes.plot(*zip(*own, strict=True), color=_COLORS[i % len(_COLORS)], linewidth=1.6,
                  label=f"attempt {i + 1}") if own else None  # fmt: skip
    for step in sorted({event.step for event in lane.events if _is_alarm(event)}):
        axes.axvline(step, color=_BAD, linewidth=1, alpha=0.7)


def _draw_devices(axes: Axes, lane: Lane) -> None:
    begin = min((attempt.began for attempt in lane.attempts), default=0.0)
    end = max((attempt.ended for attempt in lane.attempts), default=begin)
    devices = sorted({device for attempt in lane.attempts for device in attempt.devices} | {0, 1, 2})
    for i, attempt in enumerate(lane.attempts):
        for rank, device in enumerate(attempt.devices):
            length = (attempt.ended or end) - attempt.began
            axes.barh(
                device, length, left=attempt.began - begin, height=0.5, color=_COLORS[i % len(_COLORS)], alpha=0.75
            )
            axes.text(attempt.began - begin + length / 2, device, f"rank {rank}", ha="center", va="center", fontsize=8)
    for event in lane.events:
        number = event.device.partition(":")[2]
        if not number.isdigit():
            continue
        at = event.time - begin
        if _is_alarm(event):
            axes.plot(at, int(number), "o", color=_BAD, markersize=7, fillstyle="none", markeredgewidth=1.6)
        elif event.kind == "replay":
            axes.annotate(event.verdict, (at, int(number)), xytext=(0, 15), textcoords="offset points", ha="center",
                          fontsize=8, color=_BAD)  # fmt: skip
        elif event.kind == "isolation":
            axes.barh(
                int(number), max(0.0, end - event.time), left=at, height=0.5, color="none", edgecolor=_BAD, hatch="xx"
            )
            axes.text(at + (end - event.time) / 2, int(number), "isolated", ha="center", va="center", fontsize=8,
                      color=_BAD, backgroundcolor="white")  # fmt: skip
    axes.set_yticks(devices, [f"{device}" for device in devices])
    axes.set_ylim(max(devices) + 0.6, -0.7)
    axes.set_xlim(0, max(end - begin, 1) * 1.02)
    axes.set_xlabel("seconds")


def _is_alarm(event: Event) -> bool:
    return event.kind == "anomaly" and event.level is Level.ERROR


def _wrapped(title: str, width: int = 48) -> str:
    lines = [""]
    for word in title.split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)
