"""Draws the plots of the documents from `benchmarks/results`, and copies those that a benchmark drew itself."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

sys.path.insert(0, str(Path(__file__).parent))

from tables import BEST, RESULTS, result

COPIED = ("detection.png", "sensitivity.png", "strata.png")
_BLUE, _RED = "#1f4e79", "#a61c1c"
_DETECTORS = {
    "Ascend V2, mended (default)": "document's rule",
    "Ascend V3": "Ascend V3",
    "Ascend V3, recalibrated to 2^9": "Ascend V3, fitted",
    "ZClip": "ZClip",
    "Megatron": "Megatron",
    "asd adaptive": "adaptive",
    "asd adaptive + second look": "adaptive, ASD_CONFIRM",
    BEST: "adaptive, ASD_OPTIONS:confirm, checksum",
}


def draw(folder: Path) -> None:
    """Writes all pictures into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in COPIED:
        shutil.copyfile(RESULTS / name, folder / name)
    with mpl.rc_context({"svg.hashsalt": "asd", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        for name, make in (("found", _found), ("steps", _steps), ("first_level", _first_level)):
            figure = make()
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, bbox_inches="tight")
            plt.close(figure)


def _found() -> plt.Figure:
    figure, axes = plt.subplots(figsize=(8, 4))
    for offset, key, colour, words in ((0.2, "single", _BLUE, "of one step"), (-0.2, "persistent", _RED, "lasting")):
        shares = [result("detection")["detectors"][name][key]["own_steps"] for name in _DETECTORS]
        _bars(axes, [row + offset for row in range(len(shares))], shares, colour, words)
    axes.set_yticks(range(len(_DETECTORS)), list(_DETECTORS.values()))
    axes.set_xlim(0, 100)
    axes.set_xlabel("harmful faults found while they last, %, with Wilson's 95 % interval")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return figure


def _bars(axes: Any, places: list[float], shares: list[dict[str, float]], colour: str, words: str) -> None:
    middle = [100 * share["share"] for share in shares]
    around = [
        [100 * (share["share"] - share["low"]) for share in shares],
        [100 * (share["high"] - share["share"]) for share in shares],
    ]
    axes.barh(places, middle, 0.38, color=colour, alpha=0.75, label=words)
    axes.errorbar(middle, places, xerr=around, fmt="none", ecolor="#333", capsize=2, linewidth=1)


def _steps() -> plt.Figure:
    names = [
        ("overhead", "large, graph, full", "large, graph, default"),
        ("overhead", "large, graph, document", "large, graph, document"),
        ("overhead", "large, graph, all", "large, graph, linear layers too"),
        ("overhead", "large, graph, tiers", "large, graph, adaptive"),
        ("overhead", "large, pynative, full", "large, PyNative, default"),
        ("overhead", "large, pynative, document", "large, PyNative, document"),
        ("overhead", "large, pynative, all", "large, PyNative, linear layers too"),
        ("overhead", "small, graph, full", "small, graph, default"),
        ("overhead", "small, graph, document", "small, graph, document"),
        ("overhead", "small, graph, tiers", "small, graph, adaptive"),
        ("overhead", "small, pynative, full", "small, PyNative, default"),
        ("overhead", "small, pynative, document", "small, PyNative, document"),
    ]
    figure, axes = plt.subplots(figsize=(8, 3.6))
    for row, (source, name, _) in enumerate(reversed(names)):
        found = result(source)["steps"][name]["ratio"]
        around = [[found["median"] - found["q25"]], [found["q75"] - found["median"]]]
        axes.errorbar([found["median"]], [row], xerr=around, fmt="o", color=_BLUE, capsize=3)
    axes.axvline(1, color="#888", linewidth=1)
    axes.set_yticks(range(len(names)), [words for *_, words in reversed(names)])
    axes.set_xlabel("step time with detection, relative to that without: median and quartiles")
    return figure


def _first_level() -> plt.Figure:
    figure, axes = plt.subplots(figsize=(8, 3))
    for row, name in enumerate(_DETECTORS):
        rate, bound = result("detection")["detectors"][name]["false_alarms"]["first_later"]
        axes.plot([max(rate, 0.1), bound], [row, row], color=_BLUE, linewidth=2)
        axes.plot([max(rate, 0.1)], [row], "o" if rate else "<", color=_BLUE)
    axes.set_xscale("log")
    axes.set_yticks(range(len(_DETECTORS)), list(_DETECTORS.values()))
    axes.set_xlabel("first-level alarms in a million clean checks, and the upper 95 % bound (◂ none)")
    return figure


if __name__ == "__main__":
    draw(Path(__file__).resolve().parents[1] / "pictures" / "made")
