"""The one number a tensor is measured by, in one read; the only place where devices differ."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops
from mindspore.ops import auto_generate
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.private.cells import without_gradients
from asd.operators.private.layout import local, operators_are_divided
from asd.operators.private.mixed_precision import CheckCell

SMALL = 1 << 18  # most elements of a tensor that is read more than once, as a launch takes longer than a read
_LEAST = 2.0**-100
_CAST, _STACK, _SQRT, _CONCAT, _GATHER = P.Cast(), P.Stack(), P.Sqrt(), P.Concat(), P.Gather()
_HALF_OF_SQUARES, _MAX, _ABS, _SUM, _EACH = P.L2Loss(), P.ReduceMax(), P.Abs(), P.ReduceSum(), ops.HyperMap()
# Those of Ascend that MindSpore's own `vector_norm` calls for these orders.
_VECTOR_NORM: Any = getattr(auto_generate, "linalg_vector_norm_op", None)
_LARGEST: Any = getattr(auto_generate, "lp_norm_v2_op", None)


class Statistics(CheckCell):
    """The statistic of each of some tensors.

    Attributes:
        largest: Whether it is the largest magnitude; else the L2 norm.
        leaves_overflows: Whether values that are not finite are left to a dynamic loss scaler.
        scales: Whether squares of small tensors stay in the range of float32, whatever that of the tensor is. In a
            divided network most have a shape of their own on each rank, and are large.
    """

    def __init__(self) -> None:
        super().__init__()
        self.leaves_overflows = False
        self.largest, self.scales = False, not operators_are_divided()
        self.on_cpu = ms.get_context("device_target") == "CPU"

    def construct(self, tensors):
        """Tensors of any shape and floating-point type.

        Returns:
            float32 of shape (n,). It is `inf` or `nan` where an element is. Where the squares of a tensor that is not
            small leave the range of float32, it is `inf` or 0.
        """
        return self.finish(_STACK(_EACH(self.one, tensors)))  # a loop takes the square of their number to compile

    def one(self, x):
        """Returns the statistic of one tensor, of shape (); `finish` completes it."""
        if not self.on_cpu:  # vector norms, which read half precision and sum in float32
            if self.largest:
                return _CAST(_LARGEST(x, float("inf"), None, False, 0.0), ms.float32)
            if x.dtype == ms.float16 or not self.is_small(x):
                return _VECTOR_NORM(x, 2.0, None, False, ms.float32)
            size = _VECTOR_NORM(x, 1.0, None, False, ms.float32) + _LEAST
            return _VECTOR_NORM(_CAST(x, ms.float32) / size, 2.0, None, False, ms.float32) * size
        if self.largest:
            x = x if x.dtype == ms.float32 else _CAST(x, ms.float32)
            return _MAX(_ABS(x)) + _SUM(x * 0)  # the largest drops NaN there
        if self.is_small(x):
            return _HALF_OF_SQUARES(_CAST(x, ms.float64))
        x = x if x.dtype == ms.float32 else _CAST(x, ms.float32)
        return _CAST(_HALF_OF_SQUARES(x), ms.float64)

    def of_rows(self, x):
        """Returns the statistic of each row of a matrix, float32 of shape (n,)."""
        if self.on_cpu:
            x = _CAST(x, ms.float32 if self.largest else ms.float64)
            return _MAX(_ABS(x), 1) + _SUM(x * 0, 1) if self.largest else _CAST(_SQRT(_SUM(x * x, 1)), ms.float32)
        if self.largest:
            return _CAST(_LARGEST(x, float("inf"), (1,), False, 0.0), ms.float32)
        return _VECTOR_NORM(x, 2.0, (1,), False, ms.float32)

    def is_small(self, x):
        """Returns whether a tensor of known shape is small enough to be read more than once."""
        if not self.scales or F.is_sequence_value_unknown(x.shape):
            return False
        elements = 1
        for length in x.shape:
            elements = elements * length
        return elements <= SMALL

    def finish(self, found):
        """Completes the stacked results of `one`."""
        return _CAST(_SQRT(2.0 * found), ms.float32) if self.on_cpu and not self.largest else found


def statistics(tensors: Sequence[Any], *, largest: bool = False, alike: bool = False) -> Tensor:
    """Returns the statistic of each of some tensors, in Python, called operator by operator.

    Args:
        tensors: At least one; of any shape and floating-point type, sharded over ranks or not.
        largest: Whether it is the largest magnitude; else the L2 norm.
        alike: Whether small tensors of one shape are measured together, in fewer launches.

    Returns:
        float32 of shape (n,), still on the device.
    """
    measure = _eager(largest)
    if alike:
        return by_shape(tensors, measure.of_rows)
    return measure.finish(_STACK([measure.one(F.stop_gradient(local(each))) for each in tensors]))


def by_shape(tensors: Sequence[Any], measure: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns a number for each tensor; `measure` returns one for each row of a matrix of small ones of one shape."""
    alike: dict[Any, list[int]] = {}
    parts = [local(each) for each in tensors]  # not by `stop_gradient`: at random MindSpore can't stack what it returns
    for i, x in enumerate(parts):
        is_alone = x.size > SMALL or x.dtype == ms.bfloat16  # which no CPU stacks
        alike.setdefault(i if is_alone else (x.shape, x.dtype, type(x)), []).append(i)
    groups = [[parts[i] for i in own] for own in alike.values()]
    order = np.argsort([i for own in alike.values() for i in own]).astype(np.int32)
    with without_gradients():
        found = [measure((_STACK(own) if len(own) > 1 else own[0]).reshape((len(own), -1))) for own in groups]
        return _GATHER(_CONCAT(found), Tensor(order), 0)


@functools.cache
def _eager(largest: bool) -> Statistics:  # noqa: FBT001 - a key
    made = Statistics()
    made.largest = largest
    return made
