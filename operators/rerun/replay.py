"""Makes a step again, without a trace, to find out who is to blame for its anomaly.

The gate refuses every update meanwhile, so the same compiled graph runs and nothing of it reaches a weight. What else
a step may write, such as moving statistics, gradient buffers and random streams, begins each run as the step began, and
is put back afterwards to what the step left. All ranks do the same, because their steps wait for each other: once each
its own batch, then that of the suspect. A rank makes the step of one that holds the same part of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindspore import Parameter, nn

from asd.event import Event
from asd.operators.measure.own_gradients import weights_in
from asd.operators.ranks.exchange import Exchange
from asd.operators.ranks.weights import hashes_of, total_of
from asd.operators.rerun.repeatable_step import RepeatableStep, Step
from asd.operators.table.site import Site
from asd.rules.diagnosis.rerun import Answer, Diagnosis, assignment, difference, find
from asd.rules.readings.reading import divisor

__all__ = ["Replay"]


class Replay:
    """Repeats steps of one training.

    Args:
        net: The network or the training cell around it; must not be compiled yet.
        optimizer: A guarded optimizer.
        sites: The checkpoints whose values are compared.
        also: More Parameters that a step may change, such as those of a loss scaler.
        exchange: The ranks; those of this job if not given.
        keeps_moving: See `RepeatableStep`.

    Attributes:
        step: The step that is repeated.
    """

    def __init__(
        self, net: nn.Cell, optimizer: nn.Cell, sites: Sequence[Site], also: Sequence[Parameter] = (),
        exchange: Exchange | None = None, *, keeps_moving: bool = False,
    ) -> None:  # fmt: skip
        self._exchange = exchange if exchange is not None else Exchange()
        self.step = RepeatableStep(net, optimizer, sites, also, self._exchange.size, keeps_moving=keeps_moving)
        self._weights = weights_in(net, optimizer)

    def remember(self, step: Step) -> None:
        """Says that `step` comes next, and keeps what it begins with."""
        self.step.remember(step)

    def judge(self, original: Answer, anomaly: Event | None, scale: float = 1.0) -> Diagnosis | None:
        """Makes the last step again and says what came of it; in data parallel a call of all ranks.

        Args:
            original: What the step came to.
            anomaly: The first first-level anomaly of this rank, None if it has none.
            scale: The loss scale of the step.

        Returns:
            The verdict about this rank, None if it has no anomaly.

        Raises:
            RankLostError: Another rank did not answer.
        """
        told = self._exchange.tell(suspect=anomaly is not None, obstacle=self.step.obstacle())
        suspects = [rank for rank, words in enumerate(told) if words["suspect"]]
        if not suspects:
            return None
        obstacles = [(rank, words["obstacle"]) for rank, words in enumerate(told) if words["obstacle"]]
        if obstacles:
            rank, reason = obstacles[0]
            where = "" if rank == self._exchange.rank else f"on rank {rank}: "
            return Diagnosis("undetermined", where + reason) if anomaly is not None else None
        with self.step.without_a_trace():
            if self._exchange.size == 1:
                finding = self._alone(original, _breaks(anomaly, scale))
            else:
                finding = self._together(original, suspects, _breaks(anomaly, scale))
        return finding if anomaly is not None else None

    def _alone(self, original: Answer, abnormal: Callable[[Answer], bool]) -> Diagnosis:
        again, failure = self.step.rerun_discarding()
        repeated = None
        if not failure and difference(original, again):
            # A third run tells hardware that failed once from a step that never says the same twice.
            repeated, failure = self.step.rerun_discarding()
        if failure:
            return Diagnosis("undetermined", failure)
        return find(original, again, repeated=repeated, abnormal=abnormal)

    def _together(self, original: Answer, suspects: list[int], abnormal: Callable[[Answer], bool]) -> Diagnosis:
        """All ranks make the step again, then the replicas without a suspect make that of one with a suspect."""
        exchange, near, groups = self._exchange, self._exchange.near, self._exchange.groups
        if not groups.replicas:
            return Diagnosis("undetermined", "not as many ranks hold each part of the network, so none has a sibling")
        bad = sorted({groups.replica_of(rank) for rank in suspects})
        runs = assignment(near.size, bad) if near.size > 1 else [0]
        own = near.rank
        again, failure = self.step.rerun_discarding()
        parcel = self.step.pack() if own in bad and near.size > 1 else b""
        told = exchange.tell(
            failure=failure, changed=difference(original, again), size=len(parcel), weights=self._hash_of_weights()
        )
        failures = [words["failure"] for words in told if words["failure"]]
        if failures:
            return Diagnosis("undetermined", failures[0])
        borrowed = b""
        for root in sorted({batch for taker, batch in enumerate(runs) if batch != taker}):
            message = near.broadcast(parcel, root, told[groups.members[root]]["size"])
            borrowed = message if root == runs[own] and root != own else borrowed
        answer, failure = self.step.rerun_discarding(borrowed)
        failures = [words["failure"] for words in exchange.tell(failure=failure) if words["failure"]]
        if failures:
            return Diagnosis("undetermined", failures[0])
        answers = near.tell(answer=answer.to_json())
        siblings = [
            Answer.from_json(answers[taker]["answer"])
            for taker, batch in enumerate(runs)
            if batch == own != taker and _alike(told, groups.replicas[taker], groups.replicas[own])
        ]
        unsteady = [
            f"rank {other}: {words['changed']}"
            for other, words in enumerate(told)
            if words["changed"] and groups.replica_of(other) not in bad
        ]
        finding = find(
            original,
            again,
            repeated=answer if runs[own] == own else None,
            siblings=siblings,
            abnormal=abnormal,
            no_sibling="no other rank has the same weights" if near.size > 1 else "no other rank holds the same",
            unsteady=unsteady[0] if unsteady else "",
        )
        return _of_one(finding, [rank for rank in suspects if groups.replica_of(rank) == own])

    def _hash_of_weights(self) -> int:
        return total_of(hashes_of(self._weights))


def _alike(told: Sequence[dict[str, Any]], ranks: Sequence[int], others: Sequence[int]) -> bool:
    """Whether two replicas have the same weights."""
    return all(told[one]["weights"] == told[other]["weights"] for one, other in zip(ranks, others, strict=True))


def _of_one(finding: Diagnosis, suspects: Sequence[int]) -> Diagnosis:
    """The verdict about one rank, where several that make one step together are under suspicion."""
    if len(suspects) < 2 or finding.verdict not in ("transient", "persistent"):
        return finding
    which = f"which of ranks {', '.join(map(str, suspects))}, that make one step together, is at fault can't be told"
    return Diagnosis("undetermined", f"{finding.reason}; {which}")


def _breaks(anomaly: Event | None, scale: float) -> Callable[[Answer], bool]:
    """Whether an answer breaks the limit that `anomaly` broke, at the same checkpoint, or is not finite there."""

    def breaks(answer: Answer) -> bool:
        if anomaly is None:
            return False
        reading = next((reading for reading in answer.readings if reading.checkpoint == anomaly.checkpoint), None)
        if reading is None:
            return False
        if reading.non_finite:
            return True
        raw = {"l2": reading.l2, "mean": reading.mean_abs}.get(anomaly.feature, reading.max_abs)
        value = raw / divisor(reading.kind, scale)
        value = value * value if anomaly.feature == "max_square" else value
        return any(value > limit for limit in anomaly.limits)

    return breaks
