"""What of a network can be checked by its operands: all that a layer holds as an operator which is known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mindspore import nn, ops
from mindspore.ops import Primitive

from asd.operators.attach.install import cell_name, class_name
from asd.operators.checks.base import ASDBase
from asd.operators.checks.call import CallASD, can_be_called
from asd.operators.checks.matmul import ProductASD
from asd.operators.checks.norm import NormASD
from asd.operators.checks.ready_made import GatherASD, LayerNormASD, RmsNormASD
from asd.operators.private.class_swap import put_on
from asd.operators.table.site import Site

__all__ = ["Place", "places", "unchecked_places"]

_PRODUCTS = ("MatMul", "BatchMatMul")
_WHOLE = ("matmul", "conv2d")
"""Attributes whose operator goes by the name of its layer."""
_UNCHECKED = ("Conv3D", "Conv2DTranspose", "Conv3DTranspose", "FlashAttentionScore", "PromptFlashAttention")
_FUNCTIONAL = {"MultiheadAttention": "it calls functions for its products and its softmax, which no layer holds"}
_LAYER_NORM = "LayerNorm"
_NORMS = (_LAYER_NORM, "RmsNorm")
_IS_WHOLE = re.compile(r"(Norm(Ext)?([123]d)?|Embedding|Softmax)$")
_ASD_NORM, _MARK = "asd_norm", "asd_calls_checked_norm"


_TAPPED = LayerNormASD | RmsNormASD | GatherASD
_CHECKED = ProductASD | NormASD | CallASD


@dataclass(frozen=True)
class Place:
    """One product or norm.

    Attributes:
        holder: The cell that holds it as an attribute, or the check operator of the norm.
        attribute: Its name there.
        operator: The operator, or the check operator in its place.
        name: Of the place.
        cell: The cell whose code calls it.
    """

    holder: Any
    attribute: str
    operator: Any
    name: str
    cell: nn.Cell

    @property
    def is_checked(self) -> bool:
        """Whether it is a check operator already."""
        return isinstance(self.operator, _CHECKED)

    def claim(self) -> list[Site]:
        """Puts a check operator there, unless it is one, under this name; returns its checkpoints."""
        operator = self.operator if self.is_checked else self._make()
        if operator is not self.operator:
            self._put(operator)
        operator.rename(self.name)
        operator.held_by(self.cell)
        for site in operator.sites:
            site.claimed = True
        sites: list[Site] = operator.sites
        return sites

    def _make(self) -> Any:
        operator = self.operator
        if type(operator).__name__ in _PRODUCTS:
            return ProductASD(operator, self.name, check=True)
        if can_be_called(operator):
            return CallASD(operator, self.name, check=True)
        if isinstance(operator, nn.Cell):
            norm, epsilon = _GroupNorm(operator.num_groups, operator.eps), operator.eps
            return NormASD(norm, self.name, groups=operator.num_groups, epsilon=epsilon, check=True)
        is_layer = type(operator).__name__ == _LAYER_NORM
        return NormASD(operator, self.name, centred=is_layer, shifted=is_layer, epsilon=operator.epsilon, check=True)

    def _put(self, operator: Any) -> None:
        if self.attribute == _ASD_NORM:
            _give_class(self.holder)
        setattr(self.holder, self.attribute, operator)


def places(net: nn.Cell) -> Iterator[Place]:
    """Every product, and every norm that is one operator or `nn.GroupNorm`, in the order of the cells."""
    seen: set[int] = set()  # check operators: one that several cells share is one place
    for path, cell in net.cells_and_names():
        layer = cell_name(f"{path}.").rstrip(".")
        if _is_group_norm(cell):
            norm = cell.asd_norm if hasattr(type(cell), _MARK) else cell
            yield Place(cell, _ASD_NORM, norm, layer or type(cell).__name__, cell)
            continue
        found = _operators_of(cell)
        for value, attribute in found:
            # Their own check is on the gradient of the input, and stays where it is.
            inside = isinstance(value, _TAPPED)
            if isinstance(value, ASDBase):
                if id(value) in seen:
                    continue
                seen.add(id(value))
            is_all = attribute in _WHOLE or (len(found) == 1 and _IS_WHOLE.search(class_name(cell)) is not None)
            name = ".".join(filter(None, (layer, "" if is_all else attribute))) or type(cell).__name__
            holder, held_as, operator = (value, "op", value.op) if inside else (cell, attribute, value)
            yield Place(holder, held_as, operator, name, cell)


def unchecked_places(net: nn.Cell) -> Iterator[tuple[str, str]]:
    """Name and reason of each cell whose results nothing computes again although they weigh much."""
    for path, cell in net.cells_and_names():
        name = cell_name(f"{path}.").rstrip(".") or type(cell).__name__
        for operator in map(type, vars(cell).values()):
            if operator.__name__ in _UNCHECKED:
                yield name, f"nothing computes a {operator.__name__} again"
        if reason := _FUNCTIONAL.get(class_name(cell), ""):
            yield name, reason


def _operators_of(cell: nn.Cell) -> list[tuple[Any, str]]:
    """What a cell holds that is, or holds, a product or a norm, with the name of the attribute."""
    return [
        (value, attribute)
        for attribute, value in vars(cell).items()
        if attribute != _unused_of(cell) and _can_be_checked(value.op if isinstance(value, _TAPPED) else value)
    ]


def _unused_of(cell: nn.Cell) -> str:
    """The operator of an embedding that is never called: it has one for each of its two ways."""
    if not isinstance(cell, nn.Embedding):
        return ""
    return "gather" if getattr(cell, "use_one_hot", False) else "array_mul"


def _can_be_checked(operator: Any) -> bool:
    if isinstance(operator, _CHECKED | RmsNormASD.of_elementwise):
        return True
    name = type(operator).__name__
    if isinstance(operator, Primitive) and can_be_called(operator):
        return True
    if not isinstance(operator, Primitive) or name not in (*_PRODUCTS, *_NORMS):
        return False
    # Else gamma has other axes than what is normalized.
    return name != _LAYER_NORM or bool(operator.begin_norm_axis == operator.begin_params_axis)


def _is_group_norm(cell: nn.Cell) -> bool:
    original = getattr(nn.GroupNorm, "_cal_output", None)
    return original is not None and (hasattr(type(cell), _MARK) or getattr(type(cell), "_cal_output", None) is original)


class _GroupNorm:
    """What `nn.GroupNorm` calls."""

    __ms_class__ = True

    def __init__(self, groups: int, epsilon: float) -> None:
        self.groups, self.epsilon = groups, epsilon

    def __call__(self, x, gamma, beta):
        return ops.group_norm(x, self.groups, gamma, beta, self.epsilon)


def _give_class(cell: nn.Cell) -> None:
    """Makes a group norm call its check operator."""
    base = type(cell)

    class CheckedGroupNorm(base):  # type: ignore[misc, valid-type]
        asd_calls_checked_norm = True

        def _cal_output(self, x):
            return self.asd_norm(x, self.gamma.to(x.dtype), self.beta.to(x.dtype))

    put_on(cell, CheckedGroupNorm)
