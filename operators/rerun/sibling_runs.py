"""Re-runs a step to attribute its anomaly: on this device, and on the peers in its replica group."""

import json
from collections.abc import Callable, Iterable, Sequence
from math import isnan
from typing import Any

from mindspore import Parameter

from asd.diagnosis.rerun import Diagnosis, find
from asd.diagnosis.spread import Spread, StepResult
from asd.event import Event
from asd.operators.private.layout import operators_are_divided
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import attempt, hashes_of, total_of
from asd.operators.rerun.repeatable_step import RepeatableStep
from asd.rules.reading import unscaled


def run_own(
    again: RepeatableStep,
    exchange: Exchange,
    original: StepResult,
    abnormal: Callable[[StepResult], bool],
    spread: Spread,
) -> Diagnosis:
    """Re-runs each rank's own step twice; that of a single rank a second time only where the first one differs.

    `original` is the result of the original run; `abnormal` returns whether a result breaks the limit that was broken.
    """
    answers: list[StepResult] = []
    # A third run distinguishes hardware that failed once from a step that is never the same twice.
    while len(answers) < 2 and (not answers or exchange.size > 1 or spread.difference(original, answers[0])):
        answer, failure = again.rerun_discarding()
        failures = [words["failure"] for words in exchange.tell(failure=failure) if words["failure"]]
        if failures:
            return Diagnosis("undetermined", failures[0])
        answers.append(answer)
    first, repeated = answers[0], answers[1] if len(answers) > 1 else None
    is_alone = "there is no peer to compare with"
    why = is_alone if exchange.size == 1 else "MindSpore shards each batch itself, so no rank can run another's"
    return find(original, first, repeated=repeated, abnormal=abnormal, no_sibling=why, spread=spread)


def run_together(
    again: RepeatableStep,
    exchange: Exchange,
    weights: Sequence[Parameter],
    original: StepResult,
    suspects: Sequence[int],
    abnormal: Callable[[StepResult], bool],
    spread: Spread,
) -> Diagnosis:
    """Re-runs the step on all ranks, then a suspect replica's step on the replicas without suspects.

    Args as for `run_own`; `weights` must be alike on peers, and `suspects` are the ranks with a local anomaly. The
    other ranks add their differences to `spread`. Returns the verdict about this rank.
    """
    near, groups = exchange.near, exchange.groups
    if exchange.size == 1 or operators_are_divided():
        return run_own(again, exchange, original, abnormal, spread)
    if not groups.replicas:
        return Diagnosis("undetermined", "shards have different numbers of ranks, so there are no peers")
    bad = sorted({groups.replica_of(rank) for rank in suspects})
    runs = assignment(near.size, bad) if near.size > 1 else [0]
    own = near.rank
    answer, failure = again.rerun_discarding()
    parcel, form = again.pack() if near.size > 1 else (b"", "")
    hashes, unread = attempt(hashes_of, weights) if form else ([], "")
    failure, alike = failure or unread, f"{total_of(hashes)} {form}" if form else ""
    seen = Spread()
    changed = seen.learn(original, answer)
    told = exchange.tell(failure=failure, changed=changed, spread=seen.to_json(), size=len(parcel), alike=alike)
    failures = [words["failure"] for words in told if words["failure"]]
    if failures:
        return Diagnosis("undetermined", failures[0])
    whole = groups.replicas
    runs = [batch if _alike(told, whole[taker], whole[batch]) else taker for taker, batch in enumerate(runs)]
    borrowed = b""
    for root in sorted({batch for taker, batch in enumerate(runs) if batch != taker}):
        message = near.broadcast(parcel, root, told[groups.members[root]]["size"])
        borrowed = message if root == runs[own] and root != own else borrowed
    second, failure = again.rerun_discarding(borrowed)
    failures = [words["failure"] for words in exchange.tell(failure=failure) if words["failure"]]
    if failures:
        return Diagnosis("undetermined", failures[0])
    answers = near.tell(answer=json.dumps(second))
    siblings = [
        StepResult.from_json(answers[taker]["answer"]) for taker, batch in enumerate(runs) if batch == own != taker
    ]
    healthy = [rank for rank in range(exchange.size) if groups.replica_of(rank) not in bad]
    unsteady = [f"rank {rank}: {told[rank]['changed']}" for rank in healthy if told[rank]["changed"]]
    teachers = [told[rank]["spread"] for rank in healthy]
    if not teachers and isnan(spread.most):  # what is far apart on a suspect is no measure
        teachers = [words["spread"] | {"wild": []} for words in told]
    return find(
        original,
        answer,
        repeated=(second._replace(loss=()) if near.size > 1 else second) if runs[own] == own else None,
        siblings=siblings,
        abnormal=abnormal,
        no_sibling=f"no other rank has the same {'weights and can be given the batch' if near.size > 1 else 'shard'}",
        unsteady=unsteady[0] if unsteady else "",
        spread=spread.with_ranks(teachers),
    )


def assignment(size: int, suspects: Iterable[int]) -> list[int]:
    """Returns the rank whose batch each rank runs, so that every suspect has a peer.

    Where there are enough others, each of them runs the batch of a suspect, and the suspects run their own again: that
    shows whether an answer depends on what the other ranks do. Otherwise each rank runs the batch of the next one.

    Args:
        size: Number of ranks, from 2 on.
        suspects: Ranks with a first-level anomaly, at least one.

    >>> assignment(4, [1])
    [1, 1, 1, 1]
    >>> assignment(2, [0, 1])
    [1, 0]
    """
    bad = sorted(set(suspects))
    others = [rank for rank in range(size) if rank not in bad]
    if len(others) < len(bad):
        return [(rank + 1) % size for rank in range(size)]
    runs = list(range(size))
    for i, rank in enumerate(others):
        runs[rank] = bad[i % len(bad)]
    return runs


def _alike(told: Sequence[dict[str, Any]], ranks: Sequence[int], others: Sequence[int]) -> bool:
    """Returns whether two replicas have the same weights, and one can be given the batch of the other."""
    return all(told[one]["alike"] == told[other]["alike"] != "" for one, other in zip(ranks, others, strict=True))


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
