"""What the steps and ranks of a comparison say of one another: an optimizer that went wrong, a mean of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from asd.dumps.compare.first_divergence import Divergence
from asd.dumps.formats.slots import split_name

__all__ = ["across_ranks", "across_steps"]


class _Pair(Protocol):
    """See `comparison.Pair`."""

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
