"""Where two runs part first, in words, and what steps and ranks say of one another about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from asd.dumps.compare.bits import BitDifference
from asd.dumps.formats.slots import split_name

__all__ = ["Divergence", "across_ranks", "across_steps", "counted"]


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs part first.

    Attributes:
        call: Name of the call in the run under test.
        trusted_call: Its name in the trusted run.
        slot: Name of the first slot that differs, the one the judgement rests on.
        kind: `operator`, `weight`, `input` or `communication`; `unknown` where the dumps can't tell.
        confidence: `high`, `medium` or `low`.
        basis: What agreement means: `bits`, `crc`, `statistics`, `value`, `rule` for the rule of accuracy, or
            `rounding` for what that explains.
        agreeing: Calls before it, all of which agree.
        reason: Why this kind, in words.
        difference: The elements that differ, when both tensors are at hand.
    """

    call: str
    trusted_call: str
    slot: str
    kind: str
    confidence: str
    basis: str
    agreeing: int
    reason: str
    difference: BitDifference | None

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        lead = {
            "operator": f"The first wrong operator is {self.call}",
            "communication": f"The first wrong communication is {self.call}",
            "weight": f"A weight is wrong before {self.call} uses it",
            "input": f"What {self.call} is given is wrong already",
            "unknown": f"Which operator is the first wrong one can't be told, {self.call} is the first to show it",
        }[self.kind]
        return f"{lead}: {self.reason}{_bits(self.difference)} ({self.kind}, confidence {self.confidence})."


def counted(count: int, noun: str) -> str:
    """A number of things in words."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _bits(difference: BitDifference | None) -> str:
    if difference is None or not difference.elements:
        return ""
    first = difference.elements[0]
    sign = ", as one flipped bit leaves it" if difference.is_one_flip else ""
    return f" in {difference.count} of {counted(difference.size, 'element')}, first at {first.words}{sign}"


class _Pair(Protocol):
    """One rank of one step on both sides."""

    step: int | None
    rank: int | None
    divergence: Divergence | None


def across_steps(pairs: Sequence[_Pair]) -> None:
    """Says of a wrong weight that the update before it is to blame, where all of the step before agrees."""
    known = {(pair.step, pair.rank): pair for pair in pairs}
    for pair in pairs:
        found = pair.divergence
        before = known.get((pair.step - 1, pair.rank)) if pair.step is not None else None
        if found is not None and found.kind == "weight" and before is not None and before.divergence is None:
            why = (
                f"all of step {before.step} agrees, so the optimizer's update after it went wrong, or a state it keeps"
            )
            pair.divergence = replace(found, reason=f"{found.reason}; {why}")


def across_ranks(pairs: Sequence[_Pair]) -> None:
    """Names nobody where a step of several ranks parts first at gradients of parameters: the optimizer gets their mean.

    The rank that made the wrong one is then not to be told from the others. A rank that parts earlier is.
    """
    for step in {pair.step for pair in pairs}:
        parted = [pair for pair in pairs if pair.step == step and pair.divergence is not None]
        if len(parted) < 2 or not all(_is_gradient(pair.divergence) for pair in parted):
            continue
        ranks = ", ".join(str(pair.rank) for pair in parted)
        why = f"the ranks {ranks} part alike, as after a mean over ranks, and none of them shows anything wrong before"
        for pair in parted:
            found = pair.divergence
            assert found is not None
            pair.divergence = replace(found, kind="unknown", confidence="low", reason=f"{found.reason}; {why}")


def _is_gradient(found: Divergence | None) -> bool:
    return found is not None and split_name(found.call)[1] == "parameters_grad"
