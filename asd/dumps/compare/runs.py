"""A whole comparison: find the dumps of both sides, compare each pair, write the tables, and say where they part."""

import csv
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from asd.dumps.compare.asked import differing
from asd.dumps.compare.comparison import UNMATCHED, CallRows, compare_dumps, mode_of
from asd.dumps.compare.first_difference import ROWS, Answer, Divergence, FirstDifference
from asd.dumps.compare.matching import match_with
from asd.dumps.compare.result_csv import ResultTable
from asd.dumps.formats.dump_folder import find_dumps, read_dump, stack_of
from asd.dumps.formats.new_file import check_writable, free_timestamp, new_file
from asd.dumps.formats.request import Request
from asd.dumps.formats.slots import split_name
from asd.errors import ConfigError, StateError, how_many

Draw = Callable[[Any, Sequence[CallRows], Mapping[str, str | None], str], str]
"""Called with a pair, its calls, the module around each, and the answer in words."""
_SURENESS = [Answer.DO_NOT_PART, Answer.CANNOT_TELL]


@dataclass
class Pair:
    """One rank of one step on both sides."""

    step: int | None  # its step; None when the paths do not say it
    rank: int | None  # its rank; likewise
    mode: str = ""  # `tensor`, `md5` or `statistics`
    calls: int = 0  # how many calls were compared
    rows: int = 0  # how many slots
    verdicts: Counter[str] = field(default_factory=Counter)  # how many rows have each verdict
    files: list[Path] = field(default_factory=list)  # what was written
    divergence: Divergence | None = None  # where the runs part; None when they agree
    compared: int = 0  # how many slots could be
    scalars: int = 0  # how many of these are no tensors
    is_empty: bool = False  # whether neither side has a call, as a scope may leave none on a rank
    left_out: str = ""  # why the first slot could not be compared that is on both sides; empty when all could
    explained: str = ""  # what was taken for rounding or left out, in words; empty when nothing was
    # settings of the optimizers of both sides; None where a dump does not say them
    optimizers: tuple[dict[str, str] | None, dict[str, str] | None] = (None, None)

    @property
    def answer(self) -> Answer:
        """Returns the answer; `cannot_tell` if nothing was compared."""
        if self.divergence is not None:
            return self.divergence.answer
        return Answer.DO_NOT_PART if self.is_compared else Answer.CANNOT_TELL

    @property
    def is_compared(self) -> bool:
        """True where slots were compared, not scalars alone while the tensors could not be."""
        return self.compared > (self.scalars if self.left_out else 0)

    @property
    def where(self) -> str:
        """Step and rank in words; empty when neither is known."""
        parts = [f"{name} {value}" for name, value in (("step", self.step), ("rank", self.rank)) if value is not None]
        return ", ".join(parts)


@dataclass
class ComparisonOutcome:
    """Result of a comparison."""

    pairs: list[Pair]  # every rank of every step that both sides have
    notes: list[str]  # further notes, one sentence each
    missing: str = ""  # the last rank of a step that could not be compared, and why; empty when all could be

    @property
    def first(self) -> Pair | None:
        """Pair that differs first: the earliest step, and in it the rank with the fewest calls before it."""
        found = [pair for pair in self.pairs if pair.divergence is not None]
        return min(found, key=lambda pair: (pair.step or 0, pair.divergence.agreeing), default=None)  # type: ignore[union-attr]

    @property
    def answer(self) -> Answer:
        """Returns the answer of the first pair that differs; if none does, the common answer."""
        first = self.first
        if first is None and self.missing:
            return Answer.CANNOT_TELL
        return first.answer if first is not None else max((pair.answer for pair in self.pairs), key=_SURENESS.index)

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        pair = self.first
        if pair is not None and pair.divergence is not None:
            return pair.divergence.sentence + (f" [{pair.where}]" if pair.where and len(self.pairs) > 1 else "")
        unmatched = sum(pair.verdicts[UNMATCHED] for pair in self.pairs)
        compared = sum(pair.compared for pair in self.pairs)
        left = sum(pair.rows for pair in self.pairs) - compared - unmatched
        why = next((pair.left_out for pair in self.pairs if pair.left_out), "")
        how = {"tensor": "tensors", "md5": "CRC32s", "statistics": "statistics"}[self.pairs[0].mode]
        if how == "CRC32s" and any(pair.verdicts["Different"] for pair in self.pairs):
            how = "CRC32s, and where they differ the statistics,"
        rest = [
            f"{unmatched} rows have no counterpart" if unmatched else "",
            f"{how_many(left, 'row')} could not be compared, first {why}" if left else "",
            *dict.fromkeys(pair.explained for pair in self.pairs),
            self.missing,
        ]
        words = "; ".join(filter(None, [f"the {how} of {how_many(compared, 'row')} were compared", *rest]))
        lead = "The runs do not part" if self.answer is Answer.DO_NOT_PART else "Can't tell whether the runs part"
        return f"{lead}: {words.rstrip('.')}."


def compare_runs(
    request: Request,
    output: Path,
    layer: Path | None = None,
    told: Callable[[CallRows], None] | None = None,
    only: tuple[int | None, int | None] = (None, None),
    draw: Draw | None = None,
) -> ComparisonOutcome:
    """Compares every rank of every step that both runs have.

    Args:
        request: The two runs.
        output: Folder for the results.
        layer: Layer mapping file, or None.
        told: Called with every call that was compared.
        only: Step and rank to compare; None for all.
        draw: Returns the page about the pair that differs first; it is written beside its csv.
    """
    check_writable(output, "the output path")
    pairs, notes = _both(*(_chosen(find_dumps(path), path, only) for path in (request.tested, request.trusted)))
    names = [_name(key, many=len(pairs) > 1) for key in pairs]
    stamp = free_timestamp(output, [f"{name}.csv" for name in names], datetime.now().astimezone())
    carried: dict[int | None, float] = {}
    done, drawn, failed, missing = [], None, "", ""
    for (key, files), name in zip(pairs.items(), names, strict=True):
        target = output / f"{name.format(stamp)}.csv"
        pair = Pair(*key)
        try:
            calls, parents = _compare_pair(request, layer, told, pair, files, target, carried)
        except StateError as error:
            notes.append(f"{_words(key).capitalize()} is not compared: {error}")
            failed = str(error)
            missing = missing if pair.is_empty else f"{_words(key)} is not compared: {error}"
            continue
        done.append(pair)
        if drawn is None or ComparisonOutcome(done, []).first is pair:
            drawn = pair, calls, parents
    if not any(pair.is_compared for pair in done):
        why = next((pair.left_out for pair in done if pair.left_out), failed or "no row is on both sides")
        raise StateError(f"Nothing of the two runs could be compared: {why.rstrip('.')}.")
    _across_steps(done)
    _across_ranks(done)
    outcome = ComparisonOutcome(done, notes, missing)
    if draw is not None and drawn is not None:
        page = drawn[0].files[0].with_suffix(".html")
        with new_file(page) as file:
            file.write(draw(*drawn, outcome.sentence).encode(errors="backslashreplace"))
        drawn[0].files.append(page)
    return outcome


def _chosen(found: dict[Any, Path], path: Path, only: tuple[int | None, int | None]) -> dict[Any, Path]:
    keys = [key for key in found if all(want in (None, has) for want, has in zip(only, key, strict=True))]
    if not keys:
        raise ConfigError("--step or --rank", _words(only), f"{path} has {', '.join(map(_words, found))}")
    return {key: found[key] for key in keys}


def _both(ours: dict[Any, Path], theirs: dict[Any, Path]) -> tuple[dict[Any, tuple[Path, Path]], list[str]]:
    if len(ours) == len(theirs) == 1:
        (key, path), (other_key, other) = *ours.items(), *theirs.items()
        notes = [f"Compared {_words(key)} with {_words(other_key)}."] if key != other_key else []
        return {key: (path, other)}, notes
    keys = sorted(ours, key=lambda key: [-1 if number is None else number for number in key])
    common = {key: (ours[key], theirs[key]) for key in keys if key in theirs}
    if not common:
        has = f"npu_path has {', '.join(map(_words, ours))}; none is on both sides"
        raise ConfigError("bench_path", ", ".join(map(_words, theirs)), has)
    notes = []
    for side, more in (("run under test", ours.keys() - theirs.keys()), ("trusted run", theirs.keys() - ours.keys())):
        if more:
            notes.append(f"Only the {side} has {'; '.join(sorted(map(_words, more)))}: not compared.")
    return common, notes


def _words(key: tuple[int | None, int | None]) -> str:
    step, rank = (("unknown" if number is None else number) for number in key)
    return f"step {step}, rank {rank}"


def _name(key: tuple[int | None, int | None], *, many: bool) -> str:
    parts = [f"{name}{number}" for name, number in zip(("step", "rank"), key, strict=True) if number is not None]
    return "_".join(["compare_result", *(parts if many else []), "{}"])


def _compare_pair(
    request: Request,
    layer: Path | None,
    told: Callable[[CallRows], None] | None,
    pair: Pair,
    files: tuple[Path, Path],
    target: Path,
    carried: dict[int | None, float],
) -> tuple[list[CallRows], Mapping[str, str | None]]:
    tested = read_dump(files[0], request.tested_data)
    trusted = read_dump(files[1], request.trusted_data, tested)
    pair.is_empty = not (tested.entries or trusted.entries)
    matching = match_with(tested, trusted, layer)
    pair.mode = mode_of(tested, trusted)
    stacks = None if request.stack is None else stack_of(_stack_file(request.stack, files[0]))
    pair.optimizers = (tested.optimizer, trusted.optimizer)
    first = FirstDifference(tested, trusted, matching, pair.mode, carried.get(pair.rank, 0.0))
    calls, compared = [], compare_dumps(tested, trusted, matching)
    del matching  # of very many calls
    for call in compared:
        _count(pair, call)
        first.add(call)
        calls.append(call)
        if told is not None:
            told(call)
    tested.entries, trusted.entries = {}, {}  # the calls hold them
    pair.divergence, pair.explained = first.result(), first.explained
    carried[pair.rank] = first.carried
    with new_file(target) as file:
        text = SimpleNamespace(write=lambda line: file.write(line.encode(errors="backslashreplace")))
        write = csv.writer(text, lineterminator="\n").writerow
        pair.files.append(target)
        table = ResultTable(pair.mode, stacks, pair.divergence)
        write(table.header)
        for call in calls:
            for index, row in enumerate(call.rows):
                write(table.line(row, call.name, first=not index))
    return calls, {**trusted.parents, **tested.parents}


def _count(pair: Pair, call: CallRows) -> None:
    pair.calls += 1
    pair.rows += len(call.rows)
    for row in call.rows:
        pair.verdicts[row.verdict] += 1
        if row.same is not None:
            pair.compared += row.verdict != UNMATCHED
            pair.scalars += row.verdict != UNMATCHED and row.is_value
        elif row.verdict != UNMATCHED and not pair.left_out:
            pair.left_out = f"{row.name}: {row.message or 'its dump holds no numbers of it'}"


def _stack_file(stack: Path, dump: Path) -> Path:
    # One stack.json is named, and every rank has its own.
    beside = dump.with_name("stack.json")
    is_own = stack.resolve().parent == dump.resolve().parent
    return stack if stack.is_file() and (is_own or not beside.is_file()) else beside


def _across_steps(pairs: Sequence[Pair]) -> None:
    """Looks at the optimizer's settings where a weight differs, and all of the step before agrees."""
    known = {(pair.step, pair.rank): pair for pair in pairs}
    for pair in pairs:
        found = pair.divergence
        before = known.get((pair.step - 1, pair.rank)) if pair.step is not None else None
        if found is None or found.kind != "weight" or before is None:
            continue
        if before.divergence is not None and before.divergence.kind != "optimizer":
            continue
        ours, theirs = before.optimizers
        why = f"all of step {before.step} agrees, so its update differs"
        if ours is not None and theirs is not None and ours != theirs:
            pair.divergence = replace(found, kind="optimizer", reason=f"{why}, and {differing(ours, theirs)}")
            continue
        how = "the dumps do not hold the optimizer's settings" if None in (ours, theirs) else "its settings are equal"
        why = f"{why}: {how}, and its state, such as moments, is in no dump"
        basis = "bits" if found.basis == "statistics" else found.basis
        pair.divergence = replace(found, kind=ROWS, basis=basis, reason=f"{why}; {found.reason}")


def _across_ranks(pairs: Sequence[Pair]) -> None:
    """Names nobody where a step of several ranks parts first at gradients of parameters: the optimizer gets their mean.

    The rank that made the wrong one is then not to be told from the others. A rank that parts earlier is.
    """
    for step in {pair.step for pair in pairs}:
        parted = [(pair, pair.divergence) for pair in pairs if pair.step == step and pair.divergence is not None]
        if len(parted) < 2 or not all(split_name(found.call)[1] == "parameters_grad" for _, found in parted):
            continue
        ranks = ", ".join(str(pair.rank) for pair, _ in parted)
        why = f"the ranks {ranks} part alike, as after a mean over ranks, and none of them shows anything wrong before"
        for pair, found in parted:
            basis = "bits" if found.kind != ROWS else found.basis
            pair.divergence = replace(found, kind=ROWS, basis=basis, reason=f"{why}; {found.reason}")
