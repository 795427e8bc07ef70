"""Draws the plots of the documents from `benchmarks/results`."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

sys.path.insert(0, str(Path(__file__).parent))

from tables import result

_BLUE = "#1f4e79"


def draw(folder: Path) -> None:
    """Writes all pictures into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "asd", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}):
        figure = _steps()
        figure.savefig(folder / "steps.svg", metadata={"Date": None}, bbox_inches="tight")
        plt.close(figure)


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


if __name__ == "__main__":
    draw(Path(__file__).resolve().parents[1] / "pictures" / "made")
