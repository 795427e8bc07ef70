"""Which layers are sampled: by what they are, and in doubt not."""

from __future__ import annotations

import re

import mindspore as ms
from mindspore import nn

from asd.operators.private.cells import can_do_without_gradients
from asd.operators.private.class_swap import stock_class
from asd.operators.table.site import is_ours

__all__ = ["compiles_itself", "repeats"]

_PURE = re.compile(
    r"mindspore\.(nn\.layer\.(activation|basic|conv|dense|embedding|math|normalization|padding|pooling)"
    r"|mint\.nn\.layer\.\w+|nn\.loss\.loss)$|mindformers\.(\w+\.)*(layer_norm|layernorm|norm|normalization|linear)$"
)
"""Modules whose layers compute their output from their input and their weights."""
_IMPURE = re.compile(r"Drop|RReLU|BatchNorm|InstanceNorm|Fractional|Sampled|Router")
"""Layers there that draw random numbers or write statistics."""


def repeats(cell: nn.Cell) -> bool:
    """Whether a layer's call gives the same bits each time and leaves nothing behind.

    Elsewhere than on a CPU that is so only where MindSpore was told to be deterministic.
    """
    kind = stock_class(cell)
    return (
        bool(_PURE.match(kind.__module__) and not _IMPURE.search(kind.__name__))
        and all(is_ours(name) for name in cell.name_cells())
        and all(weight.requires_grad for weight in cell.get_parameters())
        and not getattr(cell, "inplace", False)
        and (ms.get_context("device_target") == "CPU" or ms.get_context("deterministic") == "ON")
        and can_do_without_gradients()
    )


def compiles_itself(cell: nn.Cell) -> bool:
    """Whether its `construct` is compiled though Python calls it."""
    return hasattr(cell.construct, "__wrapped_by_jit__")
