"""The check operators that come with the package; they leave `cnt` at 0, since the host counts the checks."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import ops
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.private.mixed_precision import read
from asd.operators.sensors.base import ASDBase


class LayerNormASD(ASDBase):
    """`mindspore.ops.LayerNorm` that checks the gradient of its first input."""

    original = P.LayerNorm  # taken at import, before `enable` can replace it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(self.original, *args, **kwargs)
        self.pre_val, self.min_val, self.max_val, self.cnt = self.generate_params()

    def __call__(self, input_x, gamma, beta):
        """Returns the three outputs of `mindspore.ops.LayerNorm`."""
        if self.enable_check:
            input_x = self.check_op(input_x, self.pre_val, self.min_val, self.max_val, self.cnt, None)
        return self.op(
            read(input_x, self.parameter_type), read(gamma, self.parameter_type), read(beta, self.parameter_type)
        )


class _ComposedRmsNorm:
    """RmsNorm of elementwise operators, for backends without a kernel for `mindspore.ops.RmsNorm`.

    y = x * rstd * gamma with rstd = 1 / sqrt(mean(x^2) + epsilon) over the last axes, as many as gamma has, in float32.
    """

    __ms_class__ = True

    def __init__(self, epsilon: float = 1e-6) -> None:
        self.epsilon = epsilon

    def __call__(self, x, gamma):
        axes = tuple(range(-F.rank(gamma), 0))
        # A separate node, as the kernel would be: else PyNative adds the gradients of a residual stream in another
        # order with the check than without it.
        wide = F.cast(F.reshape(x, F.shape(x)), ms.float32)
        rstd = ops.rsqrt(ops.mean(wide * wide, axes, keep_dims=True) + self.epsilon)
        return F.cast(wide * rstd * F.cast(gamma, ms.float32), F.dtype(x)), rstd

    def shard(self, *_strategies: Any, **_kwargs: Any) -> _ComposedRmsNorm:
        """Does nothing and returns itself: a backend without the kernel has no sharding either."""
        return self


class RmsNormASD(ASDBase):
    """`mindspore.ops.RmsNorm` that checks the gradient of its first input.

    On the CPU, where MindSpore 2.7 to 2.10 has no RmsNorm kernel, it computes the same from elementwise operators.
    """

    original = P.RmsNorm

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        on_cpu = ms.get_context("device_target") == "CPU"
        super().__init__(_ComposedRmsNorm if on_cpu else self.original, *args, **kwargs)
        self.pre_val, self.min_val, self.max_val, self.cnt = self.generate_params()

    def __call__(self, input_x, gamma):
        """Returns the two outputs of `mindspore.ops.RmsNorm`."""
        if self.enable_check:
            input_x = self.check_op(input_x, self.pre_val, self.min_val, self.max_val, self.cnt, None)
        return self.op(read(input_x, self.parameter_type), read(gamma, self.parameter_type))


class GatherASD(ASDBase):
    """`mindspore.ops.Gather` that checks the gradient of its table, such as an embedding's weight."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(P.Gather, *args, **kwargs)
        self.pre_val, self.min_val, self.max_val, self.cnt = self.generate_params()

    def __call__(self, input_params, input_indices, axis):
        """Returns the output of `mindspore.ops.Gather`."""
        if self.enable_check:
            input_params = self.check_op(input_params, self.pre_val, self.min_val, self.max_val, self.cnt, None)
        return self.op(read(input_params, self.parameter_type), input_indices, axis)
