"""Cells that the self-test puts around what it tries."""

from __future__ import annotations

from typing import Any

import numpy as np
from mindspore import nn, ops

from asd.operators.selftest.values import rounded, tensor

__all__ = ["Differentiated", "FirstOutput", "Struck"]


class Differentiated(nn.Cell):
    """A cell and the gradients of its first output with respect to all inputs, in one graph.

    Args:
        net: Whose output is a tensor.
    """

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net
        self.grad = ops.GradOperation(get_all=True, sens_param=True)

    def construct(self, sens, *inputs):
        """The output, and a tuple of gradients."""
        return self.net(*inputs), self.grad(self.net)(*inputs, sens)


class FirstOutput(nn.Cell):
    """The first of what an operator gives.

    Args:
        op: The operator.
        constants: Given to it after the inputs.
    """

    def __init__(self, op: Any, *constants: Any) -> None:
        super().__init__()
        self.op, self.constants = op, constants

    def construct(self, *inputs):
        """A tensor."""
        outputs = self.op(*inputs, *self.constants)
        if isinstance(outputs, tuple):
            outputs = outputs[0]
        return outputs


class Struck(nn.Cell):
    """What an operator gives, with the last element of its first output wrong by 16."""

    def __init__(self, op: Any, shape: tuple[int, ...], dtype: str) -> None:
        super().__init__(auto_prefix=False)
        off = np.zeros(shape)
        off.flat[-1] = 16
        self.op, self.off = op, tensor(rounded(off, dtype), dtype)

    def construct(self, *inputs):
        """As the operator."""
        outputs = self.op(*inputs)
        if isinstance(outputs, tuple):
            wrong = (outputs[0] + self.off, *outputs[1:])
        else:
            wrong = outputs + self.off
        return wrong
