"""A picture of what a rule's tests have seen: how often which score came, and where the thresholds lie."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from asd.rules.readings.kinds import KINDS
from asd.rules.readings.reading import AVERAGED, GRADIENT, OUTPUT, WEIGHT_GRADIENT
from asd.rundir.disk import write_whole
from asd.tuning import Proposal
from asd.tuning import ProposedThreshold as Test
from asd.tuning.scores import BINS

__all__ = ["draw_tuning"]

_COLORS = {OUTPUT: "#4477aa", GRADIENT: "#228833", WEIGHT_GRADIENT: "#ee7733", AVERAGED: "#aa3377"}
_LOWEST = 0.5
"""Bottom of the axis, so that a single value shows."""


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
    histogram = test.scores.histogram
    for kind, color in _COLORS.items():
        places = [place for of, place in histogram if of == kind]
        if places:
            bins = range(min(places), max(places) + 1)
            edges = [2.0 ** (place / BINS) for place in (*bins, bins.stop)]
            counts = [histogram[kind, place] for place in bins]
            axes.stairs(counts, edges, fill=True, color=color, alpha=0.3, baseline=_LOWEST)
            axes.stairs(counts, edges, color=color, linewidth=1.3, baseline=_LOWEST, label=KINDS[kind].name)
    if not histogram:
        axes.text(0.5, 0.5, "no value was judged by this test", ha="center", transform=axes.transAxes)
    levels = [*test.today, *(test.pair or ()), *(extreme.score for extreme in test.drivers)]
    lowest = min((place for _, place in histogram), default=0)
    axes.set_xscale("log")
    axes.set_xlim(min(2.0 ** (lowest / BINS), *levels) / 2, 2 * max(levels))
    axes.set_yscale("log")
    axes.set_ylim(bottom=_LOWEST)
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
