"""The files of one bundle of evidence: what each holds, and the page that explains them to people."""

from __future__ import annotations

import csv
import dataclasses
import importlib.metadata
import io
import json
import math
import platform
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asd.config import Config
from asd.event import LEVEL_NAMES, Event
from asd.exporters.pictures.values import draw_history
from asd.records import plain
from asd.rules.step.monitor import Monitor
from asd.rundir.disk import sync
from asd.verdict import Level

__all__ = ["VALUES", "write"]

VALUES = 200
"""Values of each checkpoint that `values.csv` holds at most."""
Point = tuple[int, float, float, Level]
"""Step, value, first-level limit and level."""
_DRAWN = 8
"""Checkpoints that the picture shows at most, the first ones of the backward pass."""
_PACKAGES = {"asd": "mindspore-asd", "mindspore": "mindspore", "mindformers": "mindformers", "numpy": "numpy"}
_PICTURE = "plot.svg"
_TEXTS = {
    "events.jsonl": "the events of this step, one CloudEvent in JSON a line, in the order of the backward pass",
    "values.csv": f"the last {VALUES} values of every checkpoint, with limit and verdict; of a step made again the bad"
    " value stands first",
    "readings.json": "what every checkpoint saw in this step: its value, its kind and the order of the first check",
    "config.json": "every setting in force",
    "versions.json": "versions of Python and of the packages",
    _PICTURE: "the values and limits of the checkpoints that broke theirs",
}


def write(folder: Path, config: Config, monitor: Monitor, events: Sequence[Event]) -> None:
    """Writes the evidence of a step into `folder`, which is there and empty, and syncs each file.

    Args:
        folder: Where to.
        config: The settings.
        monitor: Its history, readings and status as they are after the step.
        events: The events of the step, in the order of the backward pass; at least one.

    Raises:
        OSError: A file can't be written.
    """
    _write(folder / "events.jsonl", "".join(f"{event.to_json()}\n" for event in events))
    points = _points(monitor, events)
    _write(folder / "values.csv", _values(points))
    _write_json(folder / "readings.json", [reading._asdict() for reading in sorted(monitor.readings, key=_order)])
    _write_json(folder / "config.json", dataclasses.asdict(config))
    _write_json(folder / "versions.json", _versions())
    _write(folder / "README.txt", _readme(folder, events, _draw(folder, points, events)))


def _order(reading: Any) -> int:
    return int(reading.order)


def _points(monitor: Monitor, events: Sequence[Event]) -> dict[str, list[Point]]:
    """The last values of each checkpoint; of a step that was made again first what broke a limit, then what came after.

    The history has what the step came to in the end, so the values of the events are put back into it.
    """
    found = {name: list(points) for name, points in monitor.history.items()}
    for event in events:
        if event.kind == "anomaly":
            limit = event.limits[0] if event.limits else math.nan
            bad, points = (event.step, event.value, limit, event.level), found.setdefault(event.checkpoint, [])
            if not any(point[0] == event.step and point[3] is event.level for point in points):
                points.insert(sum(point[0] < event.step for point in points), bad)
    return {name: points[-VALUES:] for name, points in found.items()}


def _values(found: dict[str, list[Point]]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("step", "checkpoint", "value", "limit", "level"))
    for checkpoint, points in found.items():
        for step, value, limit, level in points:
            rows.writerow((step, checkpoint, value, limit, LEVEL_NAMES[level]))
    return text.getvalue()


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": sys.version, "platform": platform.platform()}
    for name, distribution in _PACKAGES.items():
        try:
            found[name] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def _draw(folder: Path, points: dict[str, list[Point]], events: Sequence[Event]) -> str:
    """Returns why there is no picture; empty when there is."""
    errors = [event for event in events if event.level is Level.ERROR]
    broken = list(dict.fromkeys(event.checkpoint for event in errors))
    history = {name: points.get(name, []) for name in broken[:_DRAWN]}
    drawn = f"; the first {_DRAWN} are drawn" if len(broken) > _DRAWN else ""
    title = f"rank {errors[0].rank}, step {errors[0].step}: {len(broken)} checkpoint(s) broke their limits{drawn}"
    try:
        draw_history(folder / _PICTURE, history, losses={}, title=title)
    except Exception as error:  # whatever it is: the rest of the evidence is worth more than its picture
        return f"{_PICTURE}: it could not be drawn: {error}"
    return ""


def _readme(folder: Path, events: Sequence[Event], missing: str) -> str:
    errors = [event for event in events if event.level is Level.ERROR]
    first = errors[0]
    limit = f"{first.limits[0]:.6g}" if first.limits else "none"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(first.time))
    fate = "kept away from the weights" if first.refused else "applied to the weights"
    lines = [
        f"Evidence of an accuracy-sensitive feature value that was abnormal (fault code {first.code})",
        "",
        f"In step {first.step} of run {first.run}, at {when}, rank {first.rank} on {first.device} of {first.host} saw",
        f"a gradient at {first.checkpoint} whose value was {first.value:.6g}; its first-level limit was {limit}.",
        f"Reason: {first.reason}. Rule: {first.rule}, on the feature {first.feature}.",
        f"The update of this step was {fate}.",
        f"{len(errors)} checkpoint(s) broke their first-level limits in this step. A wrong gradient flows on to those",
        "behind it, so the first of them in events.jsonl is nearest to where it went wrong.",
        "",
        "Files",
        *(_item(f"{name:<14}{text}") for name, text in _TEXTS.items() if (folder / name).exists()),
    ]
    if missing:
        lines += ["", "Not kept", _item(missing)]
    return "\n".join(lines) + "\n"


def _item(text: str) -> str:
    return textwrap.fill(text, 110, initial_indent="  ", subsequent_indent=" " * 16)


def _write_json(path: Path, value: Any) -> None:
    _write(path, json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode(errors="backslashreplace"))
    sync(path)
