"""A sample of an optimizer's updates, each step another one, computed again in float64."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, nn

from asd.operators.kernel.samples import RUN_DTYPE, GateSamples
from asd.operators.measure.state.formulas import Elements, Formula, formula_of, rate_of, wrong
from asd.operators.measure.state.optimizer_state import OptimizerState
from asd.operators.private.writes import writes_to

__all__ = ["StateUpdates", "WrongUpdate"]

_RUNS, _LENGTH = 2, 128
"""Runs of elements that lie together, and how long each is."""
_STRIDE = 2654435761
"""A prime far from any size: runs of later steps lie elsewhere."""
_LARGE = 1e15
_CLEAN = 10
"""Updates that must be as expected before one is judged: an optimizer may be another than its name says."""


class WrongUpdate(NamedTuple):
    """An update that is not what its gradient, moments and weight give.

    Attributes:
        name: The weight or the moment.
        begin: The first element of the run.
        end: The first one behind it.
    """

    name: str
    begin: int
    end: int


class StateUpdates:
    """Those of one guarded optimizer, whose weights are float32.

    Args:
        optimizer: It.
        state: Its weights and moments.
        gate: Keeps the gradients' elements.

    Attributes:
        known: Whether the optimizer's formula is known, and has held so far.
        judged: Updates of runs that were computed again.
    """

    def __init__(self, optimizer: nn.Cell, state: OptimizerState, gate: GateSamples) -> None:
        self._gate, self._optimizer = gate, optimizer
        self._formula: Formula | None = formula_of(optimizer)
        self._kept = {group.name: group.parameters for group in state.groups if group.name != "weight"}
        self._weights: list[Parameter] = list(getattr(optimizer, "parameters", ()))
        alike = all(each.dtype == ms.float32 for each in [*self._weights, *state.parameters])
        whole = all(len(each) == len(self._weights) for each in self._kept.values())
        self.known = self._formula is not None and alike and whole
        self.judged = self._clean = 0
        self._runs = np.empty(0, RUN_DTYPE)
        self._before: list[tuple[np.ndarray, dict[str, np.ndarray]]] = []
        self._places: list[Hashable] = []

    def begin(self, step: int) -> None:
        """Keeps what the sample of the next step begins with."""
        count = min(_RUNS, len(self._weights))
        chosen = [(step * count + i) % len(self._weights) for i in range(count)]
        sizes = [self._weights[i].size for i in chosen]
        offsets = [step * _STRIDE % max(1, size - _LENGTH + 1) for size in sizes]
        self._runs = np.array(
            [(i, at, min(_LENGTH, size - at)) for i, at, size in zip(chosen, offsets, sizes, strict=True)], RUN_DTYPE
        )
        self._before = [self._at(*run) for run in self._runs.tolist()]
        self._places = self._where()
        self._gate.ask(self._runs)

    def drop(self) -> None:
        """Says that the program may have written what the next update begins with."""
        self._before = []

    def check(self) -> WrongUpdate | None:
        """Computes the sample of the update that was made again; None if it is right, or was not seen."""
        before, self._before = self._before, []
        gradients = self._gate.take() if before else None
        if gradients is None or self._formula is None or self._where() != self._places:
            return None
        if not np.all(np.abs(gradients) < _LARGE):  # squares may overflow; what is not finite is not made right by this
            return None
        found, begin = [], 0
        for (i, at, count), (weight, moments) in zip(self._runs.tolist(), before, strict=True):
            new_weight, new_moments = self._at(i, at, count)
            elements = Elements(gradients[begin : begin + count], weight, moments, new_weight, new_moments)
            found.append((elements, self._formula.decay[i]))
            begin += count
        told = self._judge(self._formula, found)
        self.judged += len(found)
        if self._clean < _CLEAN:
            self._clean += 1
            self.known = told is None
            return None
        return told

    def _where(self) -> list[Hashable]:
        # The optimizers that are known write by operators of their own, which leave no note: a program does, as one
        # that clips weights behind the update.
        chosen = self._runs["gradient"].tolist()
        tensors = [each[i] for each in (self._weights, *self._kept.values()) for i in chosen]
        return [(each.data_ptr(), writes_to(each)) for each in tensors]

    def _judge(self, formula: Formula, runs: list[tuple[Elements, float]]) -> WrongUpdate | None:
        shared = np.nan if self._optimizer.is_group_lr else rate_of(formula, runs)
        for (elements, decay), (i, at, count) in zip(runs, self._runs.tolist(), strict=True):
            rate = rate_of(formula, [(elements, decay)]) if self._optimizer.is_group_lr else shared
            name = wrong(formula, elements, decay, rate)
            if name:
                tensor = self._weights[i] if name == "weight" else self._kept[name][i]
                return WrongUpdate(tensor.name, at, at + count)
        return None

    def _at(self, weight: int, begin: int, count: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        def part(tensor: Parameter) -> np.ndarray:
            found: np.ndarray = tensor.asnumpy().reshape(-1)[begin : begin + count].astype(np.float64)
            return found

        return part(self._weights[weight]), {name: part(kept[weight]) for name, kept in self._kept.items()}
