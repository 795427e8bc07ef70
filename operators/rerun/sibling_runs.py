"""Re-runs a step to attribute its anomaly: on this device, and on the peers in its replica group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindspore import Parameter

from asd.diagnosis.rerun import Diagnosis, StepResult, assignment, difference, find
from asd.event import Event
from asd.operators.private.layout import operators_are_divided
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import hashes_of, total_of
from asd.operators.rerun.repeatable_step import RepeatableStep
from asd.rules.reading import unscaled


def run_alone(again: RepeatableStep, original: StepResult, abnormal: Callable[[StepResult], bool]) -> Diagnosis:
    """Returns the verdict of a rank without peers.

    Args:
        again: The step to re-run.
        original: Result of the original run.
        abnormal: Returns whether a result breaks the limit that was broken.
    """
    answer, failure = again.rerun_discarding()
    repeated = None
    if not failure and difference(original, answer):
        # A third run distinguishes hardware that failed once from a step that is never the same twice.
        repeated, failure = again.rerun_discarding()
    if failure:
        return Diagnosis("undetermined", failure)
    return find(original, answer, repeated=repeated, abnormal=abnormal)


def run_together(
    again: RepeatableStep,
    exchange: Exchange,
    weights: Sequence[Parameter],
    original: StepResult,
    suspects: Sequence[int],
    abnormal: Callable[[StepResult], bool],
) -> Diagnosis:
    """Re-runs the step on all ranks, then a suspect replica's step on the replicas without suspects.

    Args:
        again: The step to re-run.
        exchange: The ranks, and their replica groups.
        weights: Weights that must be alike on peers.
        original: Result of the original run.
        suspects: Ranks with a local anomaly.
        abnormal: Returns whether a result breaks the limit that was broken.

    Returns:
        The verdict about this rank.
    """
    near, groups = exchange.near, exchange.groups
    if operators_are_divided():
        return _run_own(again, exchange, original, abnormal)
    if not groups.replicas:
        return Diagnosis("undetermined", "not as many ranks hold each part of the network, so none has a sibling")
    bad = sorted({groups.replica_of(rank) for rank in suspects})
    runs = assignment(near.size, bad) if near.size > 1 else [0]
    own = near.rank
    answer, failure = again.rerun_discarding()
    parcel = again.pack() if own in bad and near.size > 1 else b""
    hashed = total_of(hashes_of(weights))
    told = exchange.tell(failure=failure, changed=difference(original, answer), size=len(parcel), weights=hashed)
    failures = [words["failure"] for words in told if words["failure"]]
    if failures:
        return Diagnosis("undetermined", failures[0])
    borrowed = b""
    for root in sorted({batch for taker, batch in enumerate(runs) if batch != taker}):
        message = near.broadcast(parcel, root, told[groups.members[root]]["size"])
        borrowed = message if root == runs[own] and root != own else borrowed
    second, failure = again.rerun_discarding(borrowed)
    failures = [words["failure"] for words in exchange.tell(failure=failure) if words["failure"]]
    if failures:
        return Diagnosis("undetermined", failures[0])
    answers = near.tell(answer=second.to_json())
    siblings = [
        StepResult.from_json(answers[taker]["answer"])
        for taker, batch in enumerate(runs)
        if batch == own != taker and _alike(told, groups.replicas[taker], groups.replicas[own])
    ]
    unsteady = [
        f"rank {other}: {words['changed']}"
        for other, words in enumerate(told)
        if words["changed"] and groups.replica_of(other) not in bad
    ]
    return find(
        original,
        answer,
        repeated=second if runs[own] == own else None,
        siblings=siblings,
        abnormal=abnormal,
        no_sibling="no other rank has the same weights" if near.size > 1 else "no other rank holds the same",
        unsteady=unsteady[0] if unsteady else "",
    )


def _run_own(
    again: RepeatableStep,
    exchange: Exchange,
    original: StepResult,
    abnormal: Callable[[StepResult], bool],
) -> Diagnosis:
    """Re-runs each rank's own step twice: MindSpore splits each batch itself, and cannot give it to another rank."""
    answers = []
    for _ in range(2):
        answer, failure = again.rerun_discarding()
        told = exchange.tell(failure=failure, changed=difference(original, answer))
        failures = [words["failure"] for words in told if words["failure"]]
        if failures:
            return Diagnosis("undetermined", failures[0])
        answers.append(answer)
    return find(
        original,
        answers[0],
        repeated=answers[1],
        abnormal=abnormal,
        no_sibling="MindSpore divides each batch itself, so no rank can be given another's",
    )


def _alike(told: Sequence[dict[str, Any]], ranks: Sequence[int], others: Sequence[int]) -> bool:
    """Returns whether two replicas have the same weights."""
    return all(told[one]["weights"] == told[other]["weights"] for one, other in zip(ranks, others, strict=True))


def breaks(anomaly: Event | None, scale: float) -> Callable[[StepResult], bool]:
    """Returns a check whether a result breaks the limit of `anomaly`, or is not finite, at the same checkpoint."""

    def check(answer: StepResult) -> bool:
        if anomaly is None:
            return False
        reading = next((reading for reading in answer.readings if reading.checkpoint == anomaly.checkpoint), None)
        if reading is None:
            return False
        if not reading.finite:
            return True
        value = unscaled(reading, scale)
        value = value * value if anomaly.feature == "max_square" else value
        return any(value > limit for limit in anomaly.limits)

    return check
