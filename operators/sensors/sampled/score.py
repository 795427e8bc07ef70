"""Scores how well a result fits its operands, as one number on the device: above 1 it does not fit."""

import functools
import math
import random
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops
from mindspore.ops import auto_generate
from mindspore.ops import functional as F  # noqa: N812

from asd.diagnosis.spread import CAP
from asd.operators.private.mixed_precision import CheckCell

_DEVIATIONS = 12.0
_SUM = 2.0**-24  # largest error of an addition in float32, relative to its sum
_FLOOR = 1e-18  # relative to the operands: below it float32 has no squares
_LAST_PLACE = {ms.float32: 2.0**-23, ms.float16: 2.0**-10, ms.bfloat16: 2.0**-7}
_FEWER_DIGITS = 2.0**-11  # relative precision of an operand where devices are set to multiply float32 with fewer digits
_MOST = 1 << 25  # elements of a tensor that are checked in one call, so that a check takes little memory
_BITS = {4: ms.int32, 2: ms.int16}


def rounding_of(dtype: Any) -> float:
    """Returns the last place of a type relative to a number; 0 for a type whose products are not checked."""
    return _LAST_PLACE.get(dtype, 0.0)


def _float32(x: Tensor, read_as: Any) -> Tensor:
    x = x if x.dtype == read_as else F.cast(x, read_as)
    return x if read_as == ms.float32 else F.cast(x, ms.float32)


@functools.lru_cache(maxsize=16)
def _signs(count: int) -> Tensor:
    """Returns random 1 and -1, the same in each process."""
    return Tensor(np.random.default_rng(0).choice(np.array([-1, 1], np.float32), count))


class ProductScore(CheckCell):
    """The checksum of a product C = A B + bias: C v is compared with A (B v) + bias v, for signs v.

    The sums are elementwise products, which on an accelerator run on another unit than the product.
    """

    def __init__(self) -> None:
        super().__init__()
        self.may_have_fewer_digits = ms.get_context("device_target") != "CPU"
        self.random = random.Random(0)

    def construct(self, a, b, c, bias, computed_in):
        """Returns the worst row's residual as a multiple of rounding's largest effect, float32 of shape (1,).

        It is 0 where an element is not finite, since a product may overflow. The shapes are (..., m, k), (..., k, n),
        (..., m, n) and (n,); `bias` may be None. `computed_in` is the type in which the operator read `a` and `b`.
        """
        unit = max(rounding_of(computed_in), rounding_of(c.dtype))
        tiny = 2.0**-24 if ms.float16 in (computed_in, c.dtype) else 2.0**-122
        a, b, c, bias = self._some(a, b, c, bias)
        a, b, c = _float32(a, computed_in), _float32(b, computed_in), _float32(c, c.dtype)
        terms, count = b.shape[-2:]
        signs = _signs(count)
        # Scaled by the largest elements, so that no square overflows or vanishes.
        of_a, of_b = (ops.maximum(F.reduce_max(ops.abs(x)), _FLOOR) for x in (a, b))
        a, b, c = a / of_a, b / of_b, c / of_a / of_b
        in_b = F.reduce_sum(b * b, -1)
        squares_of_a, right = a * a, F.reduce_sum(a * ops.expand_dims(F.reduce_sum(b * signs, -1), -2), -1)
        of_terms = F.reduce_sum(squares_of_a * ops.expand_dims(in_b, -2), -1)
        # Bound of a right product: a huge wrong element must not explain itself.
        most = 2.0 * F.reduce_sum(squares_of_a, -1) * ops.expand_dims(F.reduce_sum(in_b, -1), -1)
        squares = F.reduce_sum(c * c, -1)
        if bias is not None:
            bias = _float32(bias, bias.dtype) / of_a / of_b
            right, in_bias = right + F.reduce_sum(bias * signs), F.reduce_sum(bias * bias)
            squares, most = squares + in_bias, most + 3.0 * in_bias
        sums = 2 * _SUM**2 * (terms + count) / 9
        # Equal terms of a result all round alike, which adds up to half a place for each.
        of_result, of_operands = unit**2 / 12 + (_SUM * terms / 2) ** 2 + sums, sums
        if self.may_have_fewer_digits and unit == rounding_of(ms.float32):
            of_result, of_operands = of_result + _FEWER_DIGITS**2 / 4, sums + _FEWER_DIGITS**2 / 6
        deviation = ops.sqrt(of_result * ops.minimum(squares, most) + of_operands * of_terms)
        deviation = deviation + (tiny * math.sqrt(count) / of_a / of_b + _FLOOR)
        residual = ops.abs(F.reduce_sum(c * signs, -1) - right)
        score = F.reduce_max(residual / (_DEVIATIONS * deviation))
        return ops.select(ops.isfinite(F.reduce_sum(residual)), score, ops.zeros_like(score)).reshape((1,))

    def _some(self, a, b, c, bias):
        """Returns the part of a product that is checked in this call; of a large one a random part."""
        if max(a.size, b.size, c.size) <= _MOST:
            return a, b, c, bias
        columns = _some_of(b.shape[-1], _MOST // b.shape[-2], self.random)
        b, c, bias = b[..., columns], c[..., columns], None if bias is None else bias[columns]
        rows = _some_of(a.shape[-2], _MOST // max(b.shape[-2:]), self.random)
        a, c = a[..., rows, :], c[..., rows, :]
        if a.ndim == 3:
            batches = _some_of(len(a), _MOST * len(a) // max(a.size, b.size, c.size), self.random)
            a, b, c = a[batches], b[batches], c[batches]
        return a, b, c, bias


def _some_of(size: int, most: int, numbers: random.Random) -> slice:
    """Returns one of the parts of at most `most` elements; by chance, for any order would miss pairs of them."""
    part = min(size, max(1, most))
    begin = min(part * numbers.randrange(-(-size // part)), size - part)
    return slice(begin, begin + part)


class Differs(CheckCell):
    """Comparison of two results of one call: float32 of shape (1,), `inf` if any element differs, else 0.

    In MindSpore's deterministic mode bits differ. Else kernels may add in another order each time: an element differs
    where it is apart by more than 2^-10, and four last places of its type, of itself or of the tensor's mean size.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_exact, self.random = ms.get_context("deterministic") == "ON", random.Random(0)

    def construct(self, ones, others):
        """Compares two sequences of as many tensors of the same shapes and types."""
        found = [self._apart(one, other) for one, other in zip(ones, others, strict=True)]
        count = sum(F.reduce_sum(F.cast(each, ms.float32)) for each in found).reshape((1,))
        return ops.select(count > 0, Tensor([math.inf], ms.float32), Tensor([0.0], ms.float32))

    def _apart(self, one, other):
        if one.size > _MOST:
            some = _some_of(one.size, _MOST, self.random)
            one, other = one.reshape((-1,))[some], other.reshape((-1,))[some]
        differs = _bits(one) != _bits(other)
        unit = rounding_of(one.dtype)
        if self.is_exact or not unit:
            return differs
        one, other = F.cast(one, ms.float32), F.cast(other, ms.float32)
        here, there = ops.abs(one), ops.abs(other)
        # The smaller of both, so that a huge wrong element does not explain itself.
        mean = ops.minimum(F.reduce_mean(here), F.reduce_mean(there))
        most = max(CAP, 4 * unit) * ops.maximum(ops.minimum(here, there), mean)
        return ops.logical_and(differs, ops.logical_not(ops.abs(one - other) <= most))


def _bits(x):
    integer = _BITS.get(x.itemsize) if x.is_floating_point() else None
    return auto_generate.view_dtype(x.contiguous(), integer) if integer is not None else x
