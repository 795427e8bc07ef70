"""Reads the weights and the optimizer's state after a step: their extremes, for the tier that bounds them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.ops import operations as P  # noqa: N812

from asd.measured.reading import AVERAGED, WEIGHT_GRADIENT, Reading
from asd.operators.kernel import library as kernel
from asd.operators.measure.parallel_reading import read_each
from asd.operators.measure.tap import statistics_by_operators
from asd.operators.table.slots import by_backend

__all__ = ["OptimizerState"]

_SECOND_MOMENT = re.compile(r"(moments?2|(^|_)v|exp_avg_sq|vhat)$")
_JOINT = re.compile(r"(?<=.)[._]")
_FLOATS = (ms.float16, ms.float32, ms.float64, ms.bfloat16)
SHARE = 0.003
"""Of the time of a step that reading may take; a longer reading is made in every so many steps."""
SELDOM = 16
"""Steps from one reading to the next at most."""


class _Group(NamedTuple):
    name: str  # what its values are called
    second_moment: bool
    parameters: list[Parameter]


class OptimizerState:
    """The weights that an optimizer trains and the Parameters it keeps about each of them.

    A Parameter belongs to the state when its name is a prefix before a weight's name, as `moment1.norm.gamma` or
    `exp_avg_sq_norm.gamma`; the prefix names its group. Counters and learning rates are left out.

    Args:
        optimizer: Any optimizer with `parameters`.

    Attributes:
        every: Steps from one reading to the next.
        where: Per value of the last reading the name of the tensor it was found in.
        unknown: Tensors that the optimizer keeps besides these, and that nothing reads.
    """

    def __init__(self, optimizer: nn.Cell) -> None:
        weights = list(getattr(optimizer, "parameters", ()))
        trained = {id(weight) for weight in weights}
        groups: dict[str, _Group] = {"weight": _Group("weight", second_moment=False, parameters=weights)}
        self.unknown: list[str] = []
        # By the names that they had when the optimizer was made: a cell that holds it puts its own before them later.
        kept = dict(optimizer.parameters_and_names())
        sizes = {name: parameter.size for name, parameter in kept.items() if id(parameter) in trained}
        for name, parameter in kept.items():
            if name in sizes or parameter.dtype not in _FLOATS:
                continue
            group, weight = _split(name, sizes)
            if parameter.size == 1 and sizes.get(weight) != 1:
                continue  # a counter, or a rate
            if not group:
                self.unknown.append(parameter.name)
                continue
            empty = _Group(group, second_moment=bool(_SECOND_MOMENT.search(group)), parameters=[])
            groups.setdefault(group, empty).parameters.append(parameter)
        self.unknown += _hidden(optimizer, weights, {id(parameter) for parameter in kept.values()})
        self.every = 1
        self.where: dict[str, str] = {}
        self._groups = list(groups.values())
        self._seconds: list[float] = []
        self._shares = _shares(optimizer)
        self._scale = float(getattr(optimizer, "loss_scale", 1.0))
        self._sum = self._squares = 0.0
        self._unknown = True  # whether the gradients since the last reading are not all known

    @property
    def moments(self) -> list[str]:
        """The groups besides the weights."""
        return [group.name for group in self._groups if group.name != "weight"]

    @property
    def parameters(self) -> list[Parameter]:
        """Weights and state together."""
        found = [parameter for group in self._groups for parameter in group.parameters]
        return [parameter for parameter in found if parameter.dtype in _FLOATS]

    def read(self) -> dict[str, float]:
        """Per group the largest magnitude, `max_<group>`; of second moments the smallest value too, `min_<group>`.

        A magnitude is `nan` where an element is not finite.
        """
        begin = time.perf_counter()
        values: dict[str, float] = {}
        for group in self._groups:
            parameters = [parameter for parameter in group.parameters if parameter.dtype in _FLOATS]
            for parameter, (largest, smallest) in zip(parameters, _extremes(parameters, group), strict=True):
                self._keep(values, f"max_{group.name}", largest, parameter.name, sign=1)
                if group.second_moment:
                    self._keep(values, f"min_{group.name}", smallest, parameter.name, sign=-1)
        self._seconds.append(time.perf_counter() - begin)
        return values

    def note(self, readings: Iterable[Reading]) -> None:
        """Takes in the gradients of a step whose update was applied."""
        readings = list(readings)
        kind = AVERAGED if any(reading.kind == AVERAGED for reading in readings) else WEIGHT_GRADIENT
        largest = [reading.max_abs / self._scale * reading.calls for reading in readings if reading.kind == kind]
        if largest:
            self._sum += max(largest)
            self._squares += max(largest) ** 2
        self._unknown = not largest

    def growth(self) -> dict[str, float] | None:
        """By how much the gradients noted since the last call can have raised each moment; None if they are unknown.

        An Adam adds (1 - beta2) * g * g to a second moment and (1 - beta1) * g to a first one, at most. What is no Adam
        may add all of either.
        """
        total, squares, self._sum, self._squares = self._sum, self._squares, 0.0, 0.0
        if self._unknown:
            return None
        moments = [group for group in self._groups if group.name != "weight"]
        if self._shares is None:
            return {f"max_{group.name}": max(total, squares) for group in moments}
        first, second = self._shares
        return {f"max_{group.name}": second * squares if group.second_moment else first * total for group in moments}

    def pace(self, step_seconds: float, more: float = 0.0) -> None:
        """Chooses how often to read, from what the readings took and what a step takes.

        Args:
            step_seconds: What a step takes.
            more: Seconds that what else is done as often takes.
        """
        if self._seconds and step_seconds > 0:
            took = sorted(self._seconds)[len(self._seconds) // 2] + more
            self.every = min(SELDOM, max(1, math.ceil(took / (SHARE * step_seconds))))

    def _keep(self, values: dict[str, float], key: str, value: float, name: str, *, sign: int) -> None:
        known = values.get(key)
        if known is None or math.isnan(value) or sign * value > sign * known:
            values[key], self.where[key] = value, name


def _split(name: str, weights: Container[str]) -> tuple[str, str]:
    """The group of a Parameter and the name of its weight; both empty if it belongs to none."""
    for match in _JOINT.finditer(name):
        if (weight := name[match.end() :]) in weights:
            return name[: match.start()].rpartition(".")[2], weight
    return "", ""


def _hidden(optimizer: nn.Cell, weights: Sequence[Parameter], known: Container[int]) -> Iterator[str]:
    """Attributes with a tensor for each weight that are none of the optimizer's Parameters."""
    for name, value in vars(optimizer).items():
        tensors = list(value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ())
        alike = [each for each in tensors if isinstance(each, Tensor) and id(each) not in known]
        if alike and [each.shape for each in alike] == [weight.shape for weight in weights]:
            yield name


def _shares(optimizer: nn.Cell) -> tuple[float, float] | None:
    """How much of a gradient, and of its square, an Adam adds to its moments in a step; None for anything else."""
    if "Adam" not in type(optimizer).__name__:
        return None
    try:
        betas = [float(Tensor(getattr(optimizer, name)).asnumpy().reshape(-1)[0]) for name in ("beta1", "beta2")]
    except (AttributeError, TypeError, ValueError):
        return None
    return 1 - betas[0], 1 - betas[1]


def _extremes(parameters: Sequence[Parameter], group: _Group) -> list[tuple[float, float]]:
    """Largest magnitude, and the smallest value where the group is asked for it."""
    return by_backend(
        kernel=lambda _: read_each(_extremes_of_moment if group.second_moment else _largest_of, parameters),
        operators=lambda _: _extremes_by_operators(parameters, group),
    )


def _extremes_by_operators(parameters: Sequence[Parameter], group: _Group) -> list[tuple[float, float]]:
    found = []
    for parameter in parameters:
        magnitude, _, _, bad = statistics_by_operators(parameter)
        lowest = float(P.ReduceMin()(parameter.astype(ms.float32)).asnumpy()) if group.second_moment else 0.0
        found.append((math.nan if bad.asnumpy()[0] else float(magnitude.asnumpy()[0]), lowest))
    return found


def _largest_of(array: np.ndarray) -> tuple[float, float]:
    found = kernel.statistics(array)
    return (math.nan if found.non_finite else found.max_abs), 0.0


def _extremes_of_moment(array: np.ndarray) -> tuple[float, float]:
    return _largest_of(array)[0], float(np.min(array, initial=np.inf))
