"""Pictures of how alike the gradients of two runs are: one for each parameter, a curve over the steps."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from asd.dumps.gradients.similarity import RankSimilarity
from asd.dumps.gradients.summary import file_name

__all__ = ["draw_similarities"]


def draw_similarities(folder: Path, result: RankSimilarity) -> None:
    """Writes `similarities_picture/{parameter}_similarities.png`; the suspect step is marked.

    Args:
        folder: That of the rank.
        result: What it gave.

    Raises:
        OSError: A picture can't be written.
    """
    pictures = folder / "similarities_picture"
    pictures.mkdir(parents=True, exist_ok=True)
    suspect = {each.parameter: each.step for each in result.suspects}
    with mpl.rc_context({"font.size": 9, "axes.grid": True, "grid.alpha": 0.25, "text.parse_math": False}):
        for name, values in result.rows.items():
            figure = Figure(figsize=(7, 3.5), layout="constrained")
            axes = figure.subplots()
            known = [(step, value) for step, value in zip(result.steps, values, strict=True) if value is not None]
            axes.plot([step for step, _ in known], [value for _, value in known], marker="o", markersize=3)
            if name in suspect:
                axes.axvline(suspect[name], color="crimson", linewidth=1, alpha=0.6)
            axes.set(title=f"{name}, rank {result.rank}", xlabel="step", ylabel="similarity", ylim=(-0.02, 1.02))
            figure.savefig(pictures / f"{file_name(name)[:200]}_similarities.png", dpi=90)
