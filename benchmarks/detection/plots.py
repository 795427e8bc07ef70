"""The results as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

__all__ = ["draw"]


def draw(report: dict[str, Any], folder: Path) -> None:
    """Writes `detection.png`, harmful faults found, `sensitivity.png`, the smallest error found, and `strata.png`."""
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
        axis.set(xlim=(0, 1), title=title)
        axis.grid(axis="x", alpha=0.3)
    figure.suptitle("harmful faults found in their own steps, with 95 % intervals")
    figure.savefig(folder / "detection.png", dpi=120)
    plt.close(figure)
    _draw_sensitivity(report["sensitivity"], folder / "sensitivity.png")
    _draw_strata(report, folder / "strata.png")


def _draw_sensitivity(rows: list[dict[str, Any]], path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for axis, dtype in zip(axes, ("float32", "bfloat16"), strict=True):
        some = [row for row in rows if row["dtype"] == dtype]
        for name in some[0]["smallest"]:
            found = [(row["elements"], row["smallest"][name]) for row in some if row["smallest"][name] is not None]
            axis.plot(*zip(*found, strict=True), marker="o", label=name) if found else None
        axis.set(xscale="log", yscale="log", title=dtype, xlabel="elements of the product")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("smallest error of one element found, in root mean squares")
    axes[1].legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _draw_strata(report: dict[str, Any], path: Path) -> None:
    """The share of harmful faults found in their own steps, each stratum beside each detector; white where none was."""
    names = list(report["detectors"])
    strata = [key for key, line in report["strata"].items() if any(_own(line[names[0]]))]
    if not strata:
        return
    shares = [[_share(report["strata"][key][name]) for name in names] for key in strata]
    size = (0.45 * len(names) + 4, 0.2 * len(strata) + 3)
    figure, axis = plt.subplots(figsize=size, layout="constrained")
    image = axis.imshow(shares, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    labels = [f"{key} ({sum(_own(report['strata'][key][names[0]]))})" for key in strata]
    axis.set_yticks(range(len(strata)), labels, fontsize=7)
    axis.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axis.set_title("harmful faults found in their own steps (how many there were)", fontsize=9)
    figure.colorbar(image, ax=axis, shrink=0.5)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _own(line: dict[str, Any]) -> tuple[int, int]:
    return line["single"]["own"]["of"], line["persistent"]["own"]["of"]


def _share(line: dict[str, Any]) -> float:
    return sum(line[group]["own"]["found"] for group in ("single", "persistent")) / sum(_own(line))
