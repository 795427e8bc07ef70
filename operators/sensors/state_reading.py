"""Reads the extremes of an optimizer's weights and moments, all in one step of `EVERY`, with one read-back."""

from __future__ import annotations

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.gate.statistics import statistics
from asd.operators.sensors.optimizer_state import Group, OptimizerState

EVERY = 16
"""Steps from one reading to the next; no clock, since findings must not depend on how busy a machine is."""


class StateReading:
    """Reader of the state of one optimizer.

    Args:
        state: State to read; for second moments the smallest value too.
        untrained: Parameters that are saved but not trained, such as moving statistics; they must be finite.

    Attributes:
        where: Name of the tensor in which each value was found, by value.
    """

    def __init__(self, state: OptimizerState, untrained: Sequence[Parameter] = ()) -> None:
        self.where: dict[str, str] = {}
        self._state, self._untrained = state, untrained
        self._read_at = 0
        self._step_size: float | None = None  # of an Rprop

    def read(self) -> tuple[dict[str, float], dict[str, float] | None]:
        """Returns the current extremes.

        Returns:
            Per group the largest magnitude, `max_<group>`, `nan` if an element is not finite; for second moments the
            smallest value too, `min_<group>`. And the largest growth by gradients since the last reading, see
            `OptimizerState.growth`.
        """
        groups = [group for group in self._state.groups if group.parameters]
        moments = [group for group in groups if group.second_moment]
        tensors = [*(each for group in groups for each in group.parameters), *self._untrained]
        found = _read_back(
            [statistics(tensors, largest=True)] + [_smallest(each) for group in moments for each in group.parameters]
        )
        largest, smallest = np.split(found, [len(tensors)])
        values: dict[str, float] = {}
        for group in groups:
            found, largest = np.split(largest, [len(group.parameters)])
            self._take(values, f"max_{group.name}", group, found, int(np.argmax(found)))
        wrong = np.flatnonzero(~np.isfinite(largest))
        if wrong.size:
            values["untrained"], self.where["untrained"] = np.nan, self._untrained[wrong[0]].name
        for group in moments:
            found, smallest = np.split(smallest, [len(group.parameters)])
            self._take(values, f"min_{group.name}", group, found, int(np.argmin(found)))
        growth = self._state.growth(self._read_at, self._step_size)
        self._read_at, self._step_size = self._state.updates, values.get("max_step_size")
        return values, growth

    def not_finite(self) -> list[str]:
        """Returns the names of the Parameters that hold a number that is not finite."""
        held = [*self._state.parameters, *self._untrained]
        found = _read_back([statistics(held, largest=True)]) if held else ()
        return [each.name for each, value in zip(held, found, strict=True) if not np.isfinite(value)]

    def _take(self, values: dict[str, float], name: str, group: Group, found: np.ndarray, index: int) -> None:
        values[name], self.where[name] = float(found[index]), group.parameters[index].name


def _smallest(parameter: Parameter) -> Tensor:
    return P.ReduceMin()(parameter.astype(ms.float32)).reshape(1)


def _read_back(found: list[Tensor]) -> np.ndarray:
    values: np.ndarray = P.Concat()(found).asnumpy().astype(np.float64)
    return values
