"""Charts of the similarity of two runs' gradients: one for each parameter, a curve over the steps."""

from pathlib import Path

from asd.dumps.compare.similarity import RankSimilarity
from asd.dumps.record.gradient_table import file_name
from asd.exporters.pictures.chart import Area, Scale, axes, line, rule, save_picture


def draw_similarities(folder: Path, result: RankSimilarity) -> None:
    """Writes `similarities_picture/{parameter}_similarities.svg`; the suspect step is marked.

    Args:
        folder: Folder of the rank.
        result: Result of the rank.
    """
    suspect = {each.parameter: each.step for each in result.suspects}
    steps = result.steps or [0]
    area = Area(Scale(steps[0], max(steps[-1], steps[0] + 1), 60, 600), Scale(-0.02, 1.02, 220, 30))
    for name, values in result.rows.items():
        known = [
            (area.x(step), area.y(value)) for step, value in zip(result.steps, values, strict=True) if value is not None
        ]
        drawn = [*axes(area, "step", "similarity", whole=True), *line(known, "curve1")]
        if name in suspect:
            drawn.append(rule(area, suspect[name], "alarm", f"step {suspect[name]}"))
        path = folder / "similarities_picture" / f"{file_name(name)[:200]}_similarities.svg"
        save_picture(path, f"{name}, rank {result.rank}", 620, 260, drawn)
