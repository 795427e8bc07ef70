"""What mixed precision does to the operands of an operator: MindSpore casts them unseen, by the flag of the cell."""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import Parameter, nn
from mindspore.ops import functional as F  # noqa: N812

from asd.operators.private.names import find

_TYPES = {"FP16": ms.float16, "FP32": ms.float32, "BF16": ms.bfloat16}


class CheckCell(nn.Cell):
    """A cell that checks: mixed precision casts neither what it gets and returns nor what it computes with."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        if (kinds := find("MixedPrecisionType")) is not None:
            self.mixed_precision_type = kinds.NOTSET  # in PyNative that of the cell around it held inside too

    def add_flags_recursive(self, **flags: Any) -> nn.Cell:
        """Without those that `to_float` sets."""
        return super().add_flags_recursive(**{name: on for name, on in flags.items() if name.upper() not in _TYPES})


def type_of_holder(holder: nn.Cell | None) -> Any:
    """What a Parameter is cast to in the compiled code of `holder`; None where it stays as it is."""
    flag = getattr(holder, "mixed_precision_type", None)
    return _TYPES.get(getattr(flag, "name", ""))


def type_of_own_holder(operator: Any) -> Any:
    """What a Parameter is cast to in the code of the cell that holds `operator`; a property of it."""
    return type_of_holder(operator.holder)


def read(operand, parameter_type):
    """An operand as a compiled graph reads it, before it goes into a cell with a backward pass of its own.

    As an argument of such a cell a Parameter would bring the order of all side effects with it, and the compiler would
    sum the gradients of a value with several users in another order.
    """
    if isinstance(operand, Parameter):
        return F.cast(operand, F.dtype(operand) if parameter_type is None else parameter_type)
    return operand
