"""Mixed precision: MindSpore casts operands of an operator by a flag of its cell, and a check must do the same."""

from typing import Any

import mindspore as ms
from mindspore import Parameter, nn
from mindspore.ops import functional as F  # noqa: N812

from asd.operators.private.names import find

_TYPES = {"FP16": ms.float16, "FP32": ms.float32, "BF16": ms.bfloat16}


class CheckCell(nn.Cell):
    """Cell of a check: mixed precision casts neither its inputs and outputs nor its own values."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)
        if (kinds := find("MixedPrecisionType")) is not None:
            self.mixed_precision_type = kinds.NOTSET  # in PyNative the type of the cell around it applied inside too

    def add_flags_recursive(self, **flags: Any) -> nn.Cell:
        """Sets flags, except those that `to_float` sets."""
        return super().add_flags_recursive(**{name: on for name, on in flags.items() if name.upper() not in _TYPES})


def type_of_holder(holder: nn.Cell | None) -> Any:
    """Returns the type to which a Parameter is cast in the compiled code of `holder`; None where it stays as it is."""
    return _TYPES.get(getattr(getattr(holder, "mixed_precision_type", None), "name", ""))


def read(operand, parameter_type):
    """Returns an operand as a compiled graph reads it, before it enters a cell with its own backward pass.

    As an argument of such a cell a Parameter would bring the order of all side effects with it. The compiler would then
    sum the gradients of a value with several users in another order.
    """
    if isinstance(operand, Parameter):
        return F.cast(operand, F.dtype(operand) if parameter_type is None else parameter_type)
    return operand
