"""The results as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["draw"]


def draw(report: dict[str, Any], folder: Path) -> None:
    """Writes `detection.png`: coverage of harmful faults in their own steps, with Wilson intervals, by detector."""
    folder.mkdir(parents=True, exist_ok=True)
    names = list(report["detectors"])[::-1]
    figure, axes = plt.subplots(1, 2, figsize=(11, 0.3 * len(names) + 1.5), sharey=True, layout="constrained")
    for axis, group, title in zip(axes, ("single", "persistent"), ("single events", "3 steps and more"), strict=True):
        shares = [report["detectors"][name][group]["own_steps"] for name in names]
        middle = [share["share"] for share in shares]
        errors = [
            [share["share"] - share["low"] for share in shares],
            [share["high"] - share["share"] for share in shares],
        ]
        axis.barh(names, middle, xerr=errors, color="#4878a8", error_kw={"lw": 1})
        axis.set(xlim=(0, 1), title=f"harmful faults found in their own steps: {title}")
        axis.grid(axis="x", alpha=0.3)
    figure.savefig(folder / "detection.png", dpi=120)
    plt.close(figure)
