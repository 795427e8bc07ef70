"""Values in the report: a plot per checkpoint from the evidence, and the last value of every checkpoint."""

import math
from collections.abc import Sequence

from asd.errors import how_many
from asd.exporters.pictures.markup import Html, name, number, tag
from asd.exporters.pictures.values import Point, nearness, plot_values
from asd.exporters.report.bundles import read_histories
from asd.exporters.report.data import SORTS, Rank, RunData
from asd.exporters.report.tables import Row, fold, note, table
from asd.origin import Origin
from asd.rundir.names import evidence_folder

_OPEN_PLOTS, _MOST_PLOTS, _OPEN_VALUES, _MOST_VALUES = 12, 60, 12, 100


def value_plots(data: RunData) -> list[Html]:
    """Returns plots from the evidence, broken limits first, then by nearness; and the last values of the rest."""
    histories = read_histories(data.bundles, data.unreadable)
    series = [(*place, site, points) for place, sites in histories.items() for site, points in sites.items()]
    accused = {(_folder(data, each), each.rank) for each in data.accused}  # another attempt has other devices
    series.sort(key=lambda each: (each[:2] not in accused, *_rank_of_series(each[3])))
    figures = [_figure(data, *each) for each in series[:_MOST_PLOTS]]
    opened, folded = figures[:_OPEN_PLOTS], figures[_OPEN_PLOTS:]
    content: list[Html] = []
    if opened:
        words = (
            "The last steps before an anomaly, on a log axis. Solid: the value; dashed: its first-level limit; "
            "◆ first-level and ▲ second-level anomaly. Values that are not finite are marked at the top."
        )
        content = [*note(words), tag("div", opened, class_="plots")]
        grid = [tag("div", folded, class_="plots")] if folded else []
        content += fold(grid, len(folded), "checkpoint", len(series) - len(figures))
    return content + _last_values(data)


def _rank_of_series(points: Sequence[Point]) -> tuple[int, float]:
    firsts = [point.step for point in points if point.level == "first"]
    seconds = any(point.level == "second" for point in points)
    return (0 if firsts else 1 if seconds else 2), (float(min(firsts)) if firsts else -max(map(nearness, points)))


def _figure(data: RunData, folder: str, rank: int, site: str, points: Sequence[Point]) -> Html:
    owner = next((each for each in data.ranks if each.rank == rank and _folder(data, each) == folder), None)
    whose = f"rank {rank}" + (f" · {owner.host} {owner.device}" if owner else "")
    broken = sum(point.level == "first" for point in points)
    finite = [point.value for point in points if math.isfinite(point.value)]
    words = [
        f"{how_many(broken, *SORTS['first'])}" if broken else "",
        f"largest {number(max(finite))}" if finite else "no finite value",
        f"last {number(points[-1].value)}",
        f"limit {number(points[-1].limit)}" if math.isfinite(points[-1].limit) else "no limit yet",
    ]
    return tag(
        "figure",
        tag("figcaption", tag("b", name(site), class_="name"), tag("span", whose, class_="name")),
        plot_values(f"Values of {site[:200]}, {whose}", points),
        tag("p", "; ".join(filter(None, words))),
    )


def _folder(data: RunData, rank: Rank | Origin) -> str:
    return evidence_folder(data.run_dir, rank.run, rank.rank, 0).parent.name


def _last_values(data: RunData) -> list[Html]:
    found = [
        (nearness(point), rank, site, point)
        for rank in data.ranks
        if rank.status is not None
        for site, (value, limit) in rank.status.checkpoints.items()
        for point in [Point(rank.last_step, value, limit, "")]
    ]
    found.sort(key=lambda each: -each[0])
    heads = ["Rank", "Device", "Checkpoint", "Last value", "Limit", "Value / limit"]
    rows = [
        Row([rank.rank, f"{rank.host} {rank.device}", site, point.value, point.limit, ratio or None])
        for ratio, rank, site, point in found[:_MOST_VALUES]
    ]
    words = "The last value of each checkpoint, the nearest to its limit first."
    left = len(found) - len(rows)
    return [*note(words), *table(heads, rows, opened=_OPEN_VALUES, noun="checkpoint", left=left)] if rows else []
