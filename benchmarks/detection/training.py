"""A data-parallel training that can be stopped, copied, and continued with a fault.

Replicas are computed one after another in one process and their gradients averaged, which is the arithmetic of an
all-reduce. The optimizer's state exists once, as in a sharded optimizer; weights exist once per rank, and are the same
array until a fault makes them differ.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from asd.operators.kernel.blocks import hashes_of_blocks
from benchmarks.detection.engine import Engine, Pass, adam
from benchmarks.detection.faults import Fault, corrupt
from benchmarks.detection.features import features
from benchmarks.detection.schedule import Record, Schedule
from benchmarks.detection.tasks import batch

__all__ = ["State", "Training", "odd_rank", "same_bits", "weight_hash"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class State:
    """Everything a training continues from; arrays are never changed in place.

    Attributes:
        weights: One vector per rank; the same object while they are equal.
        master: The vector of which they are copies.
        m: First moments.
        v: Second moments.
        updates: Optimizer steps since the moments were zero.
    """

    weights: tuple[Array, ...]
    master: Array
    m: Array
    v: Array
    updates: int = 0


def weight_hash(vector: Array) -> int:
    """An integer hash of the bits of float32 weights in which positions count: sum of bits_i (2 i + 1) modulo 2^64."""
    bits = vector.view(np.uint32).astype(np.uint64)
    return int((bits * (2 * np.arange(bits.size, dtype=np.uint64) + np.uint64(1))).sum(dtype=np.uint64))


@dataclass
class Training:
    """One training run.

    Attributes:
        engine: The compiled network.
        ranks: Replicas.
        schedule: Learning rates and events.
        seed: Of weights and data.
        changes: How many tensors faults have changed so far; a fault that leaves every bit as it was counts nothing.
        difference: How much the last `strike` changed the averaged gradient, relative to its norm.
        given: The gradients that the ranks gave to the last all-reduce.
        mean: What it returned.
    """

    engine: Engine
    ranks: int
    schedule: Schedule
    seed: int
    changes: int = 0
    difference: float = 0.0
    given: list[Array] = field(default_factory=list)
    mean: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    _passes: dict[int, tuple[State, list[Pass]]] = field(default_factory=dict)

    def start(self) -> State:
        """The state before step 0."""
        w = self.engine.first_weights(self.seed)
        zero = np.zeros_like(w)
        return State((w,) * self.ranks, w, zero, zero)

    def step(self, state: State, step: int, fault: Fault | None = None, *, keep: bool = False) -> tuple[State, Record]:
        """One step.

        Args:
            state: The state before it.
            step: Its number, which decides data and learning rate.
            fault: What strikes, in the steps in which it is active.
            keep: Whether the passes are kept until `forget`: branches from the same state take them over.

        Returns:
            The state after it, and what could be seen.
        """
        left = state
        if self.schedule.event == "resume" and step == self.schedule.at:
            zero = np.zeros_like(state.m)
            state = replace(state, m=zero, v=zero, updates=0)
        struck = fault if fault is not None and fault.active(step) else None
        if struck is not None and struck.target not in {"site", "reduced"}:
            state = self._strike_state(state, struck)
        micro_batches = 2 if self.schedule.happens("accumulation", step) else 1
        rows, gradients, losses, passes = [], [], [], []
        for rank in range(self.ranks):
            seen, gradient, loss = None, 0.0, 0.0
            for micro in range(micro_batches):
                one = self._pass(state, step, rank, micro)
                if struck is not None and struck.target == "site" and struck.rank == rank:
                    one = self._faulty_pass(one, state, step, struck, micro)
                passes.append(one)
                row = self.features(one, step)
                seen = row if seen is None else np.maximum(seen, row)
                gradient, loss = gradient + one.gradient, loss + one.loss
            rows.append(seen)
            gradients.append(gradient / np.float32(micro_batches))
            losses.append(loss / micro_batches)
        if keep:
            self._passes[step] = state, passes
        blocks = self.changed_blocks(left, state)
        return self.finish(state, step, np.stack(rows), gradients, losses, struck, blocks)

    def finish(
        self, state: State, step: int, seen: Array, gradients: list[Array], losses: list[float], fault: Fault | None,
        blocks: Array,
    ) -> tuple[State, Record]:  # fmt: skip
        """The all-reduce and the optimizer, once all passes of a step are there."""
        gradient = average(gradients)
        if fault is not None and fault.target == "reduced" and fault.active(step):
            gradient = self._strike_vector(gradient, fault)
        self.given, self.mean = gradients, gradient
        averaged = np.array([features(gradient[part]) for part in self.engine.slices()], np.float32)
        rate, updates = self.schedule.rate(step), state.updates + 1
        with np.errstate(all="ignore"):
            spikes = int(((np.square(gradient) > 5000 * state.v) & (state.v > 0)).sum())
        master, m, v, norm = adam(state.master, state.m, state.v, gradient, rate, updates)
        weights = tuple(
            master if w is state.master else adam(w, state.m, state.v, gradient, rate, updates)[0]
            for w in state.weights
        )
        with np.errstate(all="ignore"):
            moments = [np.abs(m).max(), v.max(), v.min()]
            bounds = np.array([[moments[0], moments[1], np.abs(w).max(), moments[2]] for w in weights], np.float32)
        new = State(weights, master, m, v, updates)
        return new, Record(seen, float(np.mean(losses)), norm, spikes, bounds, odd_rank(weights), blocks, averaged)

    def clean_pass(self, step: int, rank: int) -> Pass:
        """A kept pass."""
        return self._passes[step][1][rank]

    def forget(self) -> None:
        """Lets go of kept passes."""
        self._passes.clear()

    def strike(self, state: State, step: int, fault: Fault, clean: Record) -> tuple[State, Record]:
        """`step` with a fault in one pass, from the kept passes: only that pass is computed again."""
        kept = self._passes[step][1]
        passes = list(kept)
        passes[fault.rank] = self._faulty_pass(passes[fault.rank], state, step, fault, 0)
        rows = clean.features.copy()
        rows[fault.rank] = self.features(passes[fault.rank], step)
        self.difference = relative([p.gradient for p in kept], [p.gradient for p in passes])
        gradients, losses = [p.gradient for p in passes], [p.loss for p in passes]
        return self.finish(state, step, rows, gradients, losses, fault, clean.blocks)

    def changed_blocks(self, left: State, found: State) -> Array:
        """Compares hashes of what a step left and of what the next one finds; see `Record.blocks`."""
        rows = []
        for old, new in zip(left.weights, found.weights, strict=True):
            counts = self._compare(old, new)
            same_memory = old is left.master and new is found.master
            counts += [(0, 0)] * len(counts) if same_memory else self._compare(left.master, found.master)
            rows.append(counts + self._compare(left.m, found.m) + self._compare(left.v, found.v))
        return np.array(rows, np.int32)

    def _compare(self, old: Array, new: Array) -> list[tuple[int, int]]:
        counts = []
        for part in self.engine.slices():
            after = hashes_of_blocks(old[part])
            before = after if new is old else hashes_of_blocks(new[part])  # arrays are never changed in place
            counts.append((sum(a != b for a, b in zip(after, before, strict=True)), len(after)))
        return counts

    def features(self, one: Pass, step: int) -> Array:
        """The features of all sites of one pass, without loss scale; shape (S, 4)."""
        unscale = 1.0 / self._scale(step)
        return np.array(
            [
                features(value, 1.0 if place.kind == "Y" else unscale)
                for value, place in zip(one.values, self.engine.places, strict=True)
            ],
            np.float32,
        )

    def evaluate(self, state: State) -> float:
        """Mean loss over ranks on batches that no step trains on."""
        distinct = {id(w): w for w in state.weights}
        count = Counter(map(id, state.weights))
        total = 0.0
        for key, w in distinct.items():
            losses = [self.engine.run(w, *batch(self.engine.family, self.seed, -1 - i, 0)).loss for i in range(4)]
            total += count[key] * float(np.mean(losses))
        return total / self.ranks

    def _scale(self, step: int) -> float:
        return 2.0**14 if self.schedule.happens("loss scale", step) else 1.0

    def _batch(self, step: int, rank: int, micro: int) -> tuple[Array, Array]:
        garbage = self.schedule.event == "garbage batch" and step == self.schedule.at and rank == self.ranks - 1
        return batch(
            self.engine.family,
            self.seed,
            step,
            rank + self.ranks * micro,
            shifted=self.schedule.happens("data shift", step),
            garbage=garbage,
        )

    def _pass(self, state: State, step: int, rank: int, micro: int) -> Pass:
        if step in self._passes:
            at, passes = self._passes[step]
            if at.weights[rank] is state.weights[rank]:  # never changed in place
                return passes[rank * (len(passes) // self.ranks) + micro]
        return self.engine.run(state.weights[rank], *self._batch(step, rank, micro), scale=self._scale(step))

    def corrupted(self, clean: Pass, fault: Fault) -> Array:
        """What a fault makes of the value of its site."""
        place = self.engine.places[fault.place]
        rounded = self.engine.rounded and place.kind != "G" and not place.operator.endswith("probabilities")
        return corrupt(clean.values[fault.place], fault, rounded=rounded)

    def _faulty_pass(self, clean: Pass, state: State, step: int, fault: Fault, micro: int) -> Pass:
        faulty = self.corrupted(clean, fault)
        if same_bits(faulty, clean.values[fault.place]):
            return clean
        self.changes += 1
        inputs = self._batch(step, fault.rank, micro)
        w = state.weights[fault.rank]
        return self.engine.run(w, *inputs, scale=self._scale(step), fault=(fault.place, faulty))

    def _strike_vector(self, vector: Array, fault: Fault) -> Array:
        part = self.engine.slices()[fault.place]
        _, shape, _ = self.engine.weights[fault.place]
        faulty = vector.copy()
        faulty[part] = corrupt(vector[part].reshape(shape), fault, rounded=False).reshape(-1)
        self.changes += not same_bits(faulty[part], vector[part])
        return faulty

    def _strike_state(self, state: State, fault: Fault) -> State:
        if fault.target == "weight":
            struck = list(state.weights)
            struck[fault.rank] = self._strike_vector(struck[fault.rank], fault)
            if self.ranks == 1:
                return replace(state, weights=tuple(struck), master=struck[0])
            return replace(state, weights=tuple(struck))
        if fault.target == "master":
            master = self._strike_vector(state.master, fault)
            return replace(state, master=master, weights=tuple(master for _ in state.weights))
        return replace(state, **{fault.target: self._strike_vector(getattr(state, fault.target), fault)})


def average(gradients: list[Array]) -> Array:
    """The mean over ranks, summed in rank order in float32."""
    with np.errstate(all="ignore"):
        total = gradients[0]
        for gradient in gradients[1:]:
            total = total + gradient
        return total / np.float32(len(gradients))


def relative(clean: list[Array], faulty: list[Array]) -> float:
    """Norm of the change of the mean gradient, relative to the norm of the clean one; infinite if not finite."""
    before = average(clean)
    with np.errstate(all="ignore"):
        change = float(np.linalg.norm(average(faulty) - before) / np.linalg.norm(before))
    return change if np.isfinite(change) else float("inf")


def odd_rank(weights: tuple[Array, ...]) -> int:
    """The rank whose weights have another hash than those of the majority; see `Record.odd`."""
    hashes = {key: weight_hash(w) for key, w in {id(w): w for w in weights}.items()}
    count = Counter(hashes[id(w)] for w in weights)
    if len(count) == 1:
        return -1
    (_, most), (rare, few) = count.most_common(2)
    return next(i for i, w in enumerate(weights) if hashes[id(w)] == rare) if most > few else -2


def same_bits(a: Array, b: Array) -> bool:
    """Whether two float32 arrays are equal bit for bit."""
    left, right = (np.ascontiguousarray(x, np.float32).view(np.uint32) for x in (a, b))
    return bool(np.array_equal(left, right))
