"""State of an optimizer: the weights that it trains, its moments of each, and how much gradients add to these."""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from math import inf, nan
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn

from asd.operators.private.layout import local
from asd.operators.sensors.optimizers import members_of
from asd.rules.reading import Reading
from asd.rules.state_bound import KEPT

_FIRST_MOMENT = re.compile(r"(moments?1?|(^|_)m|exp_avg)$")
_SECOND_MOMENT = re.compile(r"(moments?2|(^|_)v|exp_avg_sq|vhat)$")
_SQUARES = re.compile("(exp_avg_sq|vhat)$|adam|lamb(?!da)", re.IGNORECASE)  # else a `v` may be signed, as of an Adan
_PLAIN = ("Momentum", "SGD", "Adagrad")  # add no more than gradients or their squares to their state: no rate
_MASTER = "main_param"  # of mindformers: a weight in float32, beside one in half precision
_JOINT = re.compile(r"(?<=.)[._]")
_ULPS = {ms.float16: 2.0**-10, ms.float32: 2.0**-23, ms.bfloat16: 2.0**-7}
"""Last places of 1: a small step changes a weight by one of its own, or not."""
FLOATS = (ms.float16, ms.float32, ms.float64, ms.bfloat16)


class StateGroup(NamedTuple):
    """Tensors of one kind."""

    name: str  # `weight`, or the prefix of the weights' names
    second_moment: bool  # whether its values are sums of squares
    parameters: list[Parameter]  # of floating-point types
    weights: list[int]  # number in `OptimizerState.weights` of the weight of each


class OptimizerState:
    """Weights that an optimizer trains, and the Parameters that it keeps for each.

    A Parameter belongs to the state when its name is a prefix and a weight's name, as `moment1.norm.gamma` or
    `exp_avg_sq_norm.gamma`; the prefix names its group. Counters and learning rates are left out.

    Args:
        optimizer: Any optimizer with `parameters`.

    Attributes:
        groups: The weights first.
        unknown: Other tensors that the optimizer keeps, which nothing reads.
        weights: All of its weights; `largest` has the largest magnitude of each, at the last reading.
        rate: Largest learning rate when it was last read; None where it is not known.
        names: Name of each tensor by its `id`, with a number where others have the same name.
    """

    def __init__(self, optimizer: nn.Cell) -> None:
        self.weights = weights = list(getattr(optimizer, "parameters", ()))
        number = {id(weight): i for i, weight in enumerate(weights)}
        floats = [i for i, weight in enumerate(weights) if weight.dtype in FLOATS]
        groups = {("weight", False): StateGroup("weight", False, [weights[i] for i in floats], floats)}
        self.unknown: list[str] = []
        self._members = members_of(optimizer)
        shares, scales = list[tuple[float, float]](), list[float]()
        self._steps_of_rate: list[tuple[float, bool] | None] = []
        for member in self._members:
            kinds, own = self._find(member, number, groups), _shares(member)
            count = len(getattr(member, "parameters", ()))
            moments = [each for each in kinds if _FIRST_MOMENT.search(each) or _SECOND_MOMENT.search(each)]
            keeps_more = kinds - {*moments, _MASTER}
            # An Adam that keeps more, as averages of weights, may put that into the weights.
            self._steps_of_rate += [None if own is not None and keeps_more else _step_of_rate(member)] * count
            shares += [(1.0, 1.0) if type(member).__name__ in _PLAIN else own or (nan, nan)] * count
            scales += [float(getattr(member, "loss_scale", 1.0))] * count
        self.groups = list(groups.values())
        gates = [getattr(each, "asd_gate", None) for each in self._members]
        sites = [site for gate in gates for site in getattr(gate, "sites", ())]
        self._sites = sites if len(sites) == len(weights) else []
        self._shares, self._scales = np.reshape(shares, (-1, 2)).T, np.array(scales)
        self._recent = np.full(len(weights), inf)  # the largest norm of each gradient; infinite if it is not known
        self._sums = np.zeros((3, len(weights)))  # since the last reading: how many, their sum, their squares'
        self._steps, self._made, self.largest = 0, 1, np.full(len(weights), inf)
        self._ulps = np.array([_ULPS.get(weight.dtype, 0.0) for weight in weights])
        self.rate: float | None = None
        seen = Counter[str]()
        self.names: dict[int, str] = {}
        for each in {id(each): each for each in (*weights, *self.parameters)}.values():
            seen[each.name] += 1
            self.names[id(each)] = each.name if seen[each.name] == 1 else f"{each.name} ({seen[each.name]})"

    def _find(self, optimizer: nn.Cell, number: Mapping[int, int], groups: dict[Any, StateGroup]) -> set[str]:
        """Adds what one optimizer keeps to `groups`, by name and `second_moment`; returns the names of its groups."""
        # By the names from the time when the optimizer was made: a cell that holds it adds a prefix to them later.
        kept, own = dict(optimizer.parameters_and_names()), set[str]()
        classes = " ".join(kind.__name__ for kind in type(optimizer).__mro__)
        sizes = {name: local(parameter).size for name, parameter in kept.items() if id(parameter) in number}
        for name, parameter in kept.items():
            if name in sizes or parameter.dtype not in FLOATS:
                continue
            group, weight = _split(name, sizes)
            if local(parameter).size == 1 and sizes.get(weight) != 1:
                continue  # a counter, or a rate
            if not group:
                self.unknown.append(parameter.name)
                continue
            second = bool(_SECOND_MOMENT.search(group) and _SQUARES.search(f"{classes} {group}"))
            found = groups.setdefault((group, second), StateGroup(group, second, parameters=[], weights=[]))
            found.parameters.append(parameter)
            found.weights.append(number[id(kept[weight])])
            own.add(group)
        self.unknown += _hidden(optimizer, {id(parameter) for parameter in kept.values()})
        return own

    @property
    def moments(self) -> list[str]:
        """Returns the names of the groups besides the weights."""
        return [group.name for group in self.groups if group.name != "weight"]

    @property
    def parameters(self) -> list[Parameter]:
        """Returns weights and state together, in the order of the groups."""
        return [parameter for group in self.groups for parameter in group.parameters]

    def note(self, readings: Iterable[Reading], updates: int) -> None:
        """Adds the gradients of some updates that were applied; readings are the largest of them."""
        values = {reading.checkpoint: reading.value for reading in readings}
        # A norm is at least as large as the largest element.
        found = [values.get(site.name, nan) for site in self._sites] or [nan] * len(self.weights)
        norms = np.array(found) / self._scales
        known, norms = np.isfinite(norms), np.where(np.isfinite(norms), norms, 0.0)
        self._sums += known, updates * norms, updates * norms * norms
        recent = np.where(np.isfinite(self._recent), KEPT * self._recent, 0.0)
        self._recent = np.where(known, np.maximum(norms, recent), inf)
        self._steps, self._made = self._steps + 1, updates

    def growth(self, move: float) -> Iterator[dict[str, float]]:
        """Yields for each tensor, in the order of `parameters`, by how much steps can have raised its largest number.

        An Adam adds at most (1 - beta2) * g * g to a second moment and (1 - beta1) * g to a first one, those of
        `_PLAIN` all of either; others are left out, whose state may have a rate in it, and what an Adam keeps besides
        moments. The gradients since the last call count, if all are known. A weight can have moved by `move`.
        """
        (counts, sums, squares), steps = self._sums, self._steps
        self._sums, self._steps = np.zeros_like(self._sums), 0
        known, is_plain = (counts == max(steps, 1)) & np.isfinite(self._shares[0]), self._shares[1] == 1
        first, second = np.where(is_plain, np.maximum(sums, squares), self._shares * (sums, squares))
        for group in self.groups:
            is_moment = group.second_moment or _FIRST_MOMENT.search(group.name)
            added = second if group.second_moment else first
            for i in group.weights:
                if group.name in ("weight", _MASTER):
                    yield {f"max_{group.name}": move}
                else:
                    yield {f"max_{group.name}": float(added[i])} if known[i] and (is_moment or is_plain[i]) else {}

    def read_rate(self) -> None:
        """Reads the largest learning rate; None where it is not known."""
        try:
            self.rate = float(max(np.max(np.asarray(each)) for member in self._members for each in _rates(member)))
        except Exception:  # a schedule is the user's
            self.rate = None

    def most(self, i: int) -> float:
        """Returns twice the most by which the last updates change weight `i`, without decay; infinite if unknown.

        The step of an Adam or an RMSProp is at most its rate times a factor, that of an SGD follows the gradients.
        """
        if self.rate is None or (known := self._steps_of_rate[i]) is None:
            return inf
        factor, follows = known
        exact = 2 * self._made * self.rate * factor * (float(self._recent[i]) if follows else 1.0)
        return exact + float(self._ulps[i] * self.largest[i])


def _split(name: str, weights: Container[str]) -> tuple[str, str]:
    """Returns the group of a Parameter and the name of its weight; both empty if it belongs to no weight."""
    for match in _JOINT.finditer(name):
        if (weight := name[match.end() :]) in weights:
            return name[: match.start()].rpartition(".")[2], weight
    return "", ""


def _hidden(optimizer: nn.Cell, known: Container[int]) -> Iterator[str]:
    """Yields names of attributes with a tensor for each weight that are not Parameters of the optimizer."""
    shapes = [weight.shape for weight in getattr(optimizer, "parameters", ())]
    for name, value in vars(optimizer).items():
        tensors = list(value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ())
        alike = [each for each in tensors if isinstance(each, Tensor) and id(each) not in known]
        if alike and [each.shape for each in alike] == shapes:
            yield name


def _number(optimizer: nn.Cell, name: str) -> float:
    return float(np.asarray(getattr(optimizer, name)).reshape(-1)[0])


def _shares(optimizer: nn.Cell) -> tuple[float, float] | None:
    """Returns the shares of a gradient and of its square that an Adam adds to its moments per step, else None."""
    if "Adam" not in type(optimizer).__name__:
        return None
    try:
        groups = getattr(optimizer, "param_groups", ())
        first, second = groups[0]["betas"] if groups else (_number(optimizer, name) for name in ("beta1", "beta2"))
        return 1 - float(first), 1 - float(second)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _step_of_rate(optimizer: nn.Cell) -> tuple[float, bool] | None:
    """Returns the most that a step is, in rates, and whether it is that times the gradients' size; None if unknown.

    Of an Adam it is the most that m / sqrt(v) can be of any gradients, by the inequality of Cauchy and Schwarz.
    """
    shares, kinds = _shares(optimizer), {each.__name__ for each in type(optimizer).__mro__}
    if shares is not None:
        first, second = shares
        rest = 1 - (1 - first) ** 2 / (1 - second) if second < 1 else 0.0
        return (max(1.0, first / (second * rest) ** 0.5), False) if second > 0 < rest else None
    try:
        if "RMSProp" in kinds and not getattr(optimizer, "centered", False):
            return (1 - _number(optimizer, "decay")) ** -0.5 / (1 - _number(optimizer, "momentum")), False
        return (1 + 1 / (1 - _number(optimizer, "momentum")), True) if kinds & {"Momentum", "SGD"} else None
    except (AttributeError, TypeError, ValueError, ZeroDivisionError):
        return None


def _rates(optimizer: nn.Cell) -> Iterator[Any]:
    """Yields the rates of all groups, those of schedules for the last step and the next."""
    groups, found = getattr(optimizer, "param_groups", ()), getattr(optimizer, "learning_rate", ())
    yield from (group["lr"] for group in groups)
    for each in found if isinstance(found, (tuple, list, nn.CellList, ms.ParameterTuple)) else (found,):
        if not isinstance(each, nn.Cell):
            yield each
        elif isinstance(getattr(each, "learning_rate", None), Parameter):  # one of each step
            yield each.learning_rate
        else:
            yield from (each.construct(optimizer.global_step - back) for back in (0, 1))
