"""State of an optimizer: the weights that it trains, its moments of each, and how much gradients add to these."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

import mindspore as ms
from mindspore import Parameter, Tensor, nn

from asd.operators.private.layout import local
from asd.rules.reading import AVERAGED, WEIGHT_GRADIENT, Reading

_SECOND_MOMENT = re.compile(r"(moments?2|(^|_)v|exp_avg_sq|vhat)$")
_JOINT = re.compile(r"(?<=.)[._]")
FLOATS = (ms.float16, ms.float32, ms.float64, ms.bfloat16)
_REMEMBERED = 64
"""Steps whose largest gradient is kept: more than between two readings of the state."""


class Group(NamedTuple):
    """Tensors of one kind.

    Attributes:
        name: `weight`, or the prefix of the weights' names.
        second_moment: Whether its values are sums of squares.
        parameters: Parameters of floating-point types.
    """

    name: str
    second_moment: bool
    parameters: list[Parameter]


class OptimizerState:
    """Weights that an optimizer trains, and the Parameters that it keeps for each.

    A Parameter belongs to the state when its name is a prefix and a weight's name, as `moment1.norm.gamma` or
    `exp_avg_sq_norm.gamma`; the prefix names its group. Counters and learning rates are left out.

    Args:
        optimizer: Any optimizer with `parameters`.

    Attributes:
        groups: The weights first.
        unknown: Other tensors that the optimizer keeps, which nothing reads.
        updates: Number of updates noted.
    """

    def __init__(self, optimizer: nn.Cell) -> None:
        weights = list(getattr(optimizer, "parameters", ()))
        trained = {id(weight) for weight in weights}
        floats = [weight for weight in weights if weight.dtype in FLOATS]
        groups: dict[str, Group] = {"weight": Group("weight", second_moment=False, parameters=floats)}
        self.unknown: list[str] = []
        # By the names from the time when the optimizer was made: a cell that holds it adds a prefix to them later.
        kept = dict(optimizer.parameters_and_names())
        sizes = {name: local(parameter).size for name, parameter in kept.items() if id(parameter) in trained}
        for name, parameter in kept.items():
            if name in sizes or parameter.dtype not in FLOATS:
                continue
            group, weight = _split(name, sizes)
            if local(parameter).size == 1 and sizes.get(weight) != 1:
                continue  # a counter, or a rate
            if not group:
                self.unknown.append(parameter.name)
                continue
            empty = Group(group, second_moment=bool(_SECOND_MOMENT.search(group)), parameters=[])
            groups.setdefault(group, empty).parameters.append(parameter)
        self.unknown += _hidden(optimizer, weights, {id(parameter) for parameter in kept.values()})
        self.groups = list(groups.values())
        self.updates = 0
        self._largest: deque[float | None] = deque(maxlen=_REMEMBERED)
        self._shares = _shares(optimizer)
        self._scale = float(getattr(optimizer, "loss_scale", 1.0))
        self._rprop = (
            (float(optimizer.etaplus), float(optimizer.step_size_max)) if isinstance(optimizer, nn.Rprop) else None
        )

    @property
    def moments(self) -> list[str]:
        """Returns the names of the groups besides the weights."""
        return [group.name for group in self.groups if group.name != "weight"]

    @property
    def parameters(self) -> list[Parameter]:
        """Returns weights and state together, in the order of the groups."""
        return [parameter for group in self.groups for parameter in group.parameters]

    def note(self, readings: Iterable[Reading]) -> None:
        """Adds the gradients of a step whose update was applied."""
        readings = list(readings)
        kind = AVERAGED if any(reading.kind == AVERAGED for reading in readings) else WEIGHT_GRADIENT
        # A norm is at least as large as the largest element.
        largest = [reading.value / self._scale for reading in readings if reading.kind == kind]
        self.updates += 1
        self._largest.append(max(largest, default=None))

    def growth(self, since: int, step_size: float | None = None) -> dict[str, float] | None:
        """Returns the largest amount by which gradients can have raised each moment; None if unknown.

        An Adam adds at most (1 - beta2) * g * g to a second moment and (1 - beta1) * g to a first one. Another
        optimizer may add all of either. An Rprop moves a weight by its step size, which grows by a factor per step.

        Args:
            since: Number of updates noted at the previous reading of the moments.
            step_size: Largest step size of an Rprop at that reading.
        """
        count = min(len(self._largest), self.updates - since)
        if count == 0 or self._largest[-1] is None:
            return None
        recent = [each for each in list(self._largest)[-count:] if each is not None]
        total, squares = sum(recent), sum(each * each for each in recent)
        moments = [group for group in self.groups if group.name != "weight"]
        if self._shares is None:
            grown = {f"max_{group.name}": max(total, squares) for group in moments}
            if self._rprop is not None and step_size is not None:
                factor, most = self._rprop
                sizes = [min(step_size * factor**i, most) for i in range(1, count + 1)]
                grown |= {"max_weight": sum(sizes), "max_step_size": sizes[-1]}
            return grown
        first, second = self._shares
        return {f"max_{group.name}": second * squares if group.second_moment else first * total for group in moments}


def _split(name: str, weights: Container[str]) -> tuple[str, str]:
    """Returns the group of a Parameter and the name of its weight; both empty if it belongs to no weight."""
    for match in _JOINT.finditer(name):
        if (weight := name[match.end() :]) in weights:
            return name[: match.start()].rpartition(".")[2], weight
    return "", ""


def _hidden(optimizer: nn.Cell, weights: Sequence[Parameter], known: Container[int]) -> Iterator[str]:
    """Yields names of attributes with a tensor for each weight that are not Parameters of the optimizer."""
    for name, value in vars(optimizer).items():
        tensors = list(value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ())
        alike = [each for each in tensors if isinstance(each, Tensor) and id(each) not in known]
        if alike and [each.shape for each in alike] == [weight.shape for weight in weights]:
            yield name


def _shares(optimizer: nn.Cell) -> tuple[float, float] | None:
    """Returns the shares of a gradient and of its square that an Adam adds to its moments per step, else None."""
    if "Adam" not in type(optimizer).__name__:
        return None
    try:
        betas = [float(Tensor(getattr(optimizer, name)).asnumpy().reshape(-1)[0]) for name in ("beta1", "beta2")]
    except (AttributeError, TypeError, ValueError):
        return None
    return 1 - betas[0], 1 - betas[1]
