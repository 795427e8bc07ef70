"""A picture of what a rule's tests have seen: how often which score came, and where the thresholds lie."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from asd.statefile import write_whole
from asd.tiers import KINDS
from asd.tuning import Proposal
from asd.tuning import Threshold as Test
from asd.tuning.scores import BINS

__all__ = ["draw_tuning"]

_COLORS = {"Y": "#4477aa", "B": "#228833", "W": "#ccbb44"}
_NARROWEST = 0.5


def draw_tuning(path: Path, proposal: Proposal, *, title: str) -> None:
    """Writes a PNG with one histogram for each test.

    Args:
        path: The PNG file; its folder must be there.
        proposal: What was proposed.
        title: Above the picture.

    Raises:
        OSError: The file can't be written. What was there before is as it was.
    """
    # Names of folders may hold dollar signs, which are no formula.
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "text.parse_math": False}):
        figure = Figure(figsize=(11, 1 + 3 * len(proposal.tests)), layout="constrained")
        for axes, test in zip(
            figure.subplots(len(proposal.tests), 1, squeeze=False)[:, 0], proposal.tests, strict=True
        ):
            _draw(axes, test)
        figure.suptitle(title, fontsize=11)
        picture = BytesIO()
        figure.savefig(picture, format="png", dpi=110)
    write_whole(path, picture.getvalue())


def _draw(axes: Axes, test: Test) -> None:
    for kind, color in _COLORS.items():
        bins = sorted((place, count) for (of, place), count in test.scores.histogram.items() if of == kind)
        if bins:
            left = [2.0 ** (place / BINS) for place, _ in bins]
            width = [2.0 ** ((place + 1) / BINS) - start for (place, _), start in zip(bins, left, strict=True)]
            axes.bar(
                left, [count for _, count in bins], width, align="edge", color=color, alpha=0.75, label=KINDS[kind].name
            )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=_NARROWEST)
    for pair, color, label in ((test.today, "dimgray", "today"), (test.pair, "crimson", "proposed")):
        for level, style in zip(pair or (), ("-", "--"), strict=False):
            name = f"{label}, {'first' if style == '-' else 'second'} level: {level}"
            axes.axvline(level, color=color, linestyle=style, linewidth=1.4, label=name)
    if test.drivers:
        top = test.drivers[0]
        name = f"largest: {top.score:.4g}, step {top.step}, rank {top.rank}\n{top.checkpoint[-40:]}"
        axes.axvline(top.score, color="black", linestyle=":", linewidth=1.4, label=name)
    # The usual formatters write formulas, which are off.
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter("")
    axes.set_xlabel(test.test.what)
    axes.set_ylabel("values")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize=8)
