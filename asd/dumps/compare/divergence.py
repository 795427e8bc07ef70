"""Where two runs differ first, in words, and what steps and ranks say of one another about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from asd.dumps.compare.bits import BitDifference
from asd.dumps.formats.slots import split_name

__all__ = ["Divergence", "across_ranks", "across_steps", "counted"]

ROWS = "rows"
_LEADS = {
    "operator": "The first wrong operator is {call}",
    "communication": "The first wrong communication is {call}",
    "module": "The first module to differ is {call}",
    "random": "{call} is random and gave other numbers",
    "weight": "A weight differs before {call} uses it",
    "given": "What {call} is given differs already",
}
_ROWS = {
    "rounding": "The first rows outside rounding are",
    "statistics": "The first rows whose statistics differ are",
    "bits": "The first rows that differ are",
}
_LISTED = 3


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs differ first.

    Attributes:
        call: Name of the call in the run under test.
        trusted_call: Its name in the trusted run.
        rows: Names of its rows that differ; the first is the one that the rest speaks of.
        kind: `operator` or `communication` where bits say that it computed wrongly; `module`, `random`, `weight` or
            `given` where they say what differs first; `rows` where bits do not decide.
        basis: What agreement means: `bits`, `statistics`, or `rounding` for what that explains.
        agreeing: Calls before it, all of which agree.
        reason: Why, in words.
        difference: The elements that differ, when both tensors are at hand.
    """

    call: str
    trusted_call: str
    rows: tuple[str, ...]
    kind: str
    basis: str
    agreeing: int
    reason: str
    difference: BitDifference | None = None

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        if self.kind != ROWS:
            return f"{_LEADS[self.kind].format(call=self.call)}: {self.reason}{_bits(self.difference)}."
        more = f" and {len(self.rows) - _LISTED} more" if len(self.rows) > _LISTED else ""
        return f"{_ROWS[self.basis]} {', '.join(self.rows[:_LISTED])}{more}: {self.reason}{_bits(self.difference)}."


def counted(count: int, noun: str) -> str:
    """A number of things in words."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _bits(difference: BitDifference | None) -> str:
    return "" if difference is None else f" in {difference.words}"


class _Pair(Protocol):
    """One rank of one step on both sides."""

    step: int | None
    rank: int | None
    divergence: Divergence | None


def across_steps(pairs: Sequence[_Pair]) -> None:
    """Says of a weight that differs that the update before it is to blame, where all of the step before agrees."""
    known = {(pair.step, pair.rank): pair for pair in pairs}
    for pair in pairs:
        found = pair.divergence
        before = known.get((pair.step - 1, pair.rank)) if pair.step is not None else None
        if found is not None and found.kind == "weight" and before is not None and before.divergence is None:
            why = (
                f"all of step {before.step} agrees, so the optimizer's update after it went wrong, or a state it keeps"
            )
            pair.divergence = replace(found, reason=f"{why}; {found.reason}")


def across_ranks(pairs: Sequence[_Pair]) -> None:
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
