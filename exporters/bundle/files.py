"""Files of one bundle of evidence.

- `events.jsonl`: the events of the step, one CloudEvent in JSON a line, in the order of the backward pass
- `values.csv`: the last values of every checkpoint, with limit and verdict; the broken value of a re-run step first
- `readings.json`: the reading of every checkpoint in this step: value, kind and order of the first check; for a re-run
  step first the values that broke a limit (`made` is `first`), then those of the rerun (`made` is `rerun`)
- `config.json`, `versions.json`: all settings; versions of Python and of the packages
"""

import csv
import dataclasses
import importlib.metadata
import io
import json
import math
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asd.config import Config
from asd.event import LEVEL_NAMES, Event
from asd.judge.monitor import Monitor
from asd.records import plain
from asd.rundir.disk import sync
from asd.verdict import Level

VALUES = 200  # most values of each checkpoint in `values.csv`
Point = tuple[int, float, float, Level]  # step, value, first-level limit and level
_PACKAGES = {"asd": "mindspore-asd", "mindspore": "mindspore", "mindformers": "mindformers", "numpy": "numpy"}


def write(folder: Path, config: Config, monitor: Monitor, events: Sequence[Event]) -> None:
    """Writes the evidence of a step into `folder`, which must exist and be empty, and syncs each file.

    Args:
        folder: Folder of the bundle.
        config: The settings.
        monitor: Monitor with history, readings and status after the step.
        events: The events of the step, in the order of the backward pass; at least one.
    """
    _write(folder / "events.jsonl", "".join(f"{event.to_json()}\n" for event in events))
    _write(folder / "values.csv", _values(_points(monitor, events)))
    _write_json(folder / "readings.json", _readings(monitor, events))
    _write_json(folder / "config.json", dataclasses.asdict(config))
    _write_json(folder / "versions.json", _versions())


def _readings(monitor: Monitor, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Returns the readings of the step, labelled where the step was re-run."""
    seen, points = {each.checkpoint: each for each in sorted(monitor.readings, key=_order)}, monitor.history
    first = [
        {
            **(seen[each.checkpoint]._asdict() if each.checkpoint in seen else {"checkpoint": each.checkpoint}),
            "value": each.value,
            "made": "first",
        }
        for each in events
        if each.kind == "anomaly"  # NaN differs from itself, so the spelling is compared
        and str(each.value) not in {str(p[1]) for p in points.get(each.checkpoint, ()) if p[0] == each.step}
    ]
    rerun = {"made": "rerun"} if first else {}
    return [*first, *({**reading._asdict(), **rerun} for reading in seen.values())]


def _order(reading: Any) -> int:
    return int(reading.order)


def _points(monitor: Monitor, events: Sequence[Event]) -> dict[str, list[Point]]:
    """Returns the last values of each checkpoint; a re-run step has first the broken value, then the later one.

    The history has the final result of a step, so the values of the events are added to it.
    """
    found = {name: list(points) for name, points in monitor.history.items()}
    for event in events:
        if event.kind == "anomaly":
            points = found.setdefault(event.checkpoint, [])
            # The first-level limit is that of the step: the event's own may be the one of the second level.
            known = [point[2] for point in points if point[0] <= event.step]
            limit = known[-1] if known else event.limits[0] if event.limits else math.nan
            bad = (event.step, event.value, limit, event.level)
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


def _write_json(path: Path, value: Any) -> None:
    _write(path, json.dumps(plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode(errors="backslashreplace"))
    sync(path)
