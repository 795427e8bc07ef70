"""Compares the gradients of two runs step by step, and finds the step where the runs part."""

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from asd.dumps.formats.json_file import open_text
from asd.dumps.formats.new_file import new_file
from asd.dumps.formats.npy_file import NpyFile
from asd.errors import ConfigError, StateError, and_more

_FIRST_LIMIT, _LARGEST_FALL = 0.97, 0.03
_RANK, _STEP = re.compile(r"rank(\d{1,7})"), re.compile(r"step(\d{1,7})|grad_summary_(\d{1,7})\.csv")
_SUMMARY = "grad_summary_{}.csv"
_TOLERANCE = 1e-12  # 0.98 - 0.95 is not more than 0.03, despite binary rounding


@dataclass(frozen=True, order=True)
class Suspect:
    """Parameter whose gradients part."""

    step: int  # first step in which it is suspect
    similarity: float  # similarity in that step
    rank: int  # rank in both runs
    parameter: str  # name of the parameter
    before: float | None  # similarity in the step before; None in the first step


@dataclass
class RankSimilarity:
    """Result of comparing one rank."""

    rank: int  # number of the rank
    steps: list[int]  # steps that both runs have
    # similarity in each step by parameter, and last `summary` over all elements; None where a run lacks the parameter
    rows: dict[str, list[float | None]]
    # the first suspect step of each parameter, earliest and least alike first
    suspects: list[Suspect] = field(default_factory=list)
    # first step whose statistics differ at all, and the first parameter there; None if equal
    first_difference: tuple[int, str] | None = None
    parameters: set[str] = field(default_factory=set)  # names of those that both runs have
    alone: set[str] = field(default_factory=set)  # names of those that one run alone has
    file: Path = Path()  # path of the table


class GradComparator:
    """Comparison of the files of two runs of the gradient monitor."""

    @staticmethod
    def compare_distributed(
        path1: str | Path,
        path2: str | Path,
        output_dir: str | Path,
        draw: Callable[[Path, RankSimilarity], None] | None = None,
    ) -> list[RankSimilarity]:
        """Compares all ranks and steps that both runs have; writes `rank{R}/similarities.csv` for each rank.

        Args:
            path1: The `dump_path` of one run.
            path2: The `dump_path` of the other run.
            output_dir: Folder for the tables; an existing table is not overwritten.
            draw: Draws the pictures of a rank into a folder; see `asd.exporters.pictures.gradients`.

        Returns:
            Result of each rank.

        Raises:
            ConfigError: The runs have no rank or no step in common, or a result exists already.
            StateError: A file can't be read or is not a gradient monitor's, shapes differ, or no name is common.
            OSError: A file can't be written.
        """
        runs = [_steps_of(Path(path)) for path in (path1, path2)]
        common = {rank: sorted(runs[0][rank] & runs[1][rank]) for rank in sorted(runs[0]) if rank in runs[1]}
        if not common or not all(common.values()):
            found = [{rank: sorted(steps)[:5] for rank, steps in run.items()} for run in runs]
            raise ConfigError(
                "path2",
                str(path2),
                f"ranks and steps are {found[1]} and of {path1} {found[0]}: one in common is needed",
            )
        targets = {rank: Path(output_dir) / f"rank{rank}" / "similarities.csv" for rank in common}
        for target in targets.values():
            if target.exists():
                raise ConfigError("output_dir", str(output_dir), f"{target} is there already and stays; name another")
        results = []
        for rank, steps in common.items():
            results.append(_compare_rank(rank, steps, Path(path1) / f"rank{rank}", Path(path2) / f"rank{rank}"))
            results[-1].file = targets[rank]
        for result in results:
            with new_file(result.file) as file:
                file.write(_table(result))
            if draw is not None:
                draw(result.file.parent, result)
        return results

    @staticmethod
    def sentence(results: list[RankSimilarity]) -> str:
        """Returns where the runs part, in one sentence."""
        suspects = sorted(each for result in results for each in result.suspects)
        alone = len({name for result in results for name in result.alone})
        rest = f"; {alone} parameters are in one run only" if alone else ""
        if suspects:
            first = suspects[0]
            others = sum(each.step == first.step for each in suspects) - 1
            before = "" if first.before is None else f", after {first.before:.4f} the step before"
            more = f"; {others} more part in that step" if others else ""
            return (
                f"The runs part at step {first.step}: the gradient of {first.parameter} on rank {first.rank} has a "
                f"similarity of {first.similarity:.4f}{before}{more}{rest}."
            )
        differences = sorted((*result.first_difference, result.rank) for result in results if result.first_difference)
        if differences:
            step, parameter, rank = differences[0]
            return (
                f"The runs do not part by the rule of directions; their gradients first differ at step {step}, in "
                f"{parameter} on rank {rank}{rest}."
            )
        steps = {step for result in results for step in result.steps}
        ranks = ", ".join(str(result.rank) for result in results)
        return f"The gradients of both runs are the same, as far as recorded: ranks {ranks}, {len(steps)} steps{rest}."


def _steps_of(path: Path) -> dict[int, set[int]]:
    if not path.is_dir():
        raise ConfigError("path", str(path), "it must be the folder that a gradient monitor wrote to")
    found: dict[int, set[int]] = {}
    for folder in path.iterdir():
        match = _RANK.fullmatch(folder.name)
        if match and folder.is_dir():
            steps = (_STEP.fullmatch(inner.name) for inner in folder.iterdir())
            found[int(match[1])] = {int(step[1] or step[2]) for step in steps if step}
    if not found:
        raise ConfigError("path", str(path), "it holds no folder rank0, rank1, ... of a gradient monitor")
    return found


def _compare_rank(rank: int, steps: list[int], one: Path, other: Path) -> RankSimilarity:
    rows: dict[str, list[float | None]] = {}
    totals = [[0, 0] for _ in steps]
    both, either = set[str](), set[str]()
    parted: list[tuple[int, str]] = []
    for place, step in enumerate(steps):
        ours, theirs = (_read_summary(path / _SUMMARY.format(step)) for path in (one, other))
        shared = [name for name in ours if name in theirs]
        # In the columns of both: the levels have different ones.
        parted += [(step, name) for name in shared if ours[name] | theirs[name] != theirs[name] | ours[name]]
        both, either = both.union(shared), either.union(ours, theirs)
        names = [{file.stem for file in (path / f"step{step}").glob("*.npy")} for path in (one, other)]
        for name in sorted(names[0] & names[1]):
            same, size = _alike(*(path / f"step{step}" / f"{name}.npy" for path in (one, other)))
            rows.setdefault(name, [None] * len(steps))[place] = _share(same, size)
            totals[place] = [totals[place][0] + same, totals[place][1] + size]
    both = both or set(rows)  # a step that was cut short has no table
    if not both:
        raise StateError(f"{one} and {other} have no parameter in common: {and_more(sorted(either)) or 'nothing'}.")
    rows = dict(sorted(rows.items()))
    suspects = [each for name, values in rows.items() if (each := _suspect(rank, name, steps, values)) is not None]
    rows["summary"] = [_share(*total) if total[1] else None for total in totals]
    return RankSimilarity(rank, steps, rows, sorted(suspects), parted[0] if parted else None, both, either - both)


def _alike(one: Path, other: Path) -> tuple[int, int]:
    with NpyFile(one) as left, NpyFile(other) as right:
        for file in (left, right):
            if file.dtype != np.dtype(bool):
                raise StateError(f"{file.path} holds {file.dtype}; the directions of a gradient are bool.")
        if left.shape != right.shape:
            raise StateError(
                f"{one} has the shape {list(left.shape)}, and {other} has {list(right.shape)}: the runs have not the "
                "same parameters."
            )
        pieces = zip(left.pieces(1 << 20), right.pieces(1 << 20), strict=True)
        return sum(int(np.count_nonzero(a == b)) for a, b in pieces), left.size


def _share(same: int, size: int) -> float:
    return same / size if size else 1.0


def _suspect(rank: int, name: str, steps: list[int], values: list[float | None]) -> Suspect | None:
    before: float | None = None
    for step, value in zip(steps, values, strict=True):
        if value is None:
            continue
        fell = before is not None and before - value > _LARGEST_FALL + _TOLERANCE
        if fell or (before is None and value < _FIRST_LIMIT):
            return Suspect(step, value, rank, name, before)
        before = value
    return None


def _read_summary(path: Path) -> dict[str, dict[str, str]]:
    if not path.is_file():
        return {}
    with open_text(path) as file:
        try:
            rows = list(csv.reader(file))
        except csv.Error as error:
            raise StateError(f"{path} is no table of gradients: {error}.") from None
    if not rows or rows[0][:1] != ["param_name"] or any(len(row) != len(rows[0]) for row in rows):
        raise StateError(f"{path} is no table of gradients: its columns begin with param_name, in every row as many.")
    return {row[0]: dict(zip(rows[0][1:], row[1:], strict=True)) for row in rows[1:]}


def _table(result: RankSimilarity) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["step", *result.steps])
    for name, values in result.rows.items():
        writer.writerow([name, *("" if value is None else repr(value) for value in values)])
    return b"\xef\xbb\xbf" + text.getvalue().encode()
