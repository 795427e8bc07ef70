"""Reads weights and moments of an optimizer, all in one step of `EVERY`, with one read-back."""

from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor
from mindspore.ops import operations as P  # noqa: N812

from asd.judge.detectors import Tensors
from asd.operators.gate.statistics import by_shape, statistics
from asd.operators.private.layout import local
from asd.operators.sensors.optimizer_state import OptimizerState

EVERY = 16  # steps from one reading to the next; no clock, since findings must not depend on how busy a machine is
_LEAST = P.ReduceMin()
MOVES = 4.0  # times that a weight may have moved as far, in each step, as in the largest change that was measured


class StateReading:
    """Reader of the state of one optimizer.

    Args:
        state: State to read; for second moments the smallest value too.
        untrained: Parameters that are saved but not trained, such as moving statistics; they must be finite.
    """

    def __init__(self, state: OptimizerState, untrained: Sequence[Parameter] = ()) -> None:
        self._state, self._untrained = state, untrained
        self._infinite: set[int] | None = None  # ids of untrained ones that are so from the first step on, as a mask

    def read(self, steps: int, most_changed: float) -> Tensors:
        """Returns the current values of each tensor.

        A weight changed by `most_changed` at most in a step since the last reading; 0 if unknown.

        Returns:
            Largest magnitude, `max_<group>`, `nan` if an element is not finite; for second moments the smallest value
            too, `min_<group>`; for matrices among the weights the norm, `l2_weight`.
        """
        groups = self._state.groups
        tensors = [each for group in groups for each in group.parameters]
        kinds = [group.name for group in groups for _ in group.parameters]
        squares = [i for i, each in enumerate(each for each in groups for _ in each.parameters) if each.second_moment]
        matrices = [i for i, each in enumerate(groups[0].parameters) if each.ndim > 1 and local(each).size > 0]
        parts = [statistics([*tensors, *self._untrained], largest=True, alike=True)]
        parts += [statistics([tensors[i] for i in matrices], alike=True)] if matrices else []
        parts += [by_shape([tensors[i] for i in squares], lambda x: _LEAST(x.astype(ms.float32), 1))] if squares else []
        ends = np.cumsum([len(tensors), len(self._untrained), len(matrices)])
        largest, others, norms, smallest = np.split(_read_back(parts), ends)
        move = MOVES * steps * most_changed
        weights = groups[0].weights
        # Else twice a healthy growth of the largest weight in each step: with momentum it reached 1.09.
        move = move or 2 * 1.1 ** min(steps, 64) * float(self._state.largest[weights].max(initial=0.0))
        growth, names = self._state.growth(move), [self._state.names[id(each)] for each in tensors]
        told: dict[str, tuple[dict[str, float], dict[str, float]]] = {
            name: ({f"max_{kind}": float(value)}, added)
            for name, kind, value, added in zip(names, kinds, largest, growth, strict=True)
        }
        values = [told[name][0] for name in names]
        for i, norm in zip(matrices, norms, strict=True):
            values[i]["l2_weight"] = float(norm)
        for i, least in zip(squares, smallest, strict=True):
            values[i][f"min_{kinds[i]}"] = float(least)
        self._state.largest[weights] = largest[: len(weights)]
        wild = {id(each) for each, value in zip(self._untrained, others, strict=True) if not np.isfinite(value)}
        known = self._infinite = wild if self._infinite is None else wild & self._infinite
        return told | {each.name: ({"untrained": np.nan}, {}) for each in self._untrained if id(each) in wild - known}

    def not_finite(self) -> list[str]:
        """Returns the names of the Parameters that hold a number that is not finite."""
        held = [*self._state.parameters, *self._untrained]
        found = _read_back([statistics(held, largest=True, alike=True)]) if held else ()
        wrong = [each for each, value in zip(held, found, strict=True) if not np.isfinite(value)]
        self._infinite = {id(each) for each in wrong}
        return [each.name for each in wrong]


def _read_back(found: list[Tensor]) -> np.ndarray:
    return np.asarray(P.Concat()(found).asnumpy(), np.float64)
