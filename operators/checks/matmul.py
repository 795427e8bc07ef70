"""Check operators for matrix products: `MatMul` and `BatchMatMul` with a checksum."""

from __future__ import annotations

from typing import Any

from mindspore import nn
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.config import Config
from asd.operators.checks.base import ASDBase
from asd.operators.private.layout import may_be_checked
from asd.operators.private.mixed_precision import read
from asd.operators.recompute.product import CheckedProduct
from asd.operators.table.site import Site

__all__ = ["BatchMatMulASD", "MatMulASD", "ProductASD"]


class ProductASD(ASDBase):
    """A matrix product whose result and whose two gradients are checked by their checksums, when it is their turn.

    `MatMulASD` and `BatchMatMulASD` make their operator themselves.

    Args:
        op: A `MatMul` or `BatchMatMul`.
        name: Name of the place, such as `layers.0.attention.wq`.
        check: Whether to check.

    Attributes:
        product: The checked product; only with `check`.
    """

    def __init__(self, op: Any, name: str, *, check: bool) -> None:
        # Not ASDBase's own: what is checked here is a product, not the gradient of one input.
        self.op = op
        self.name_prefix = name
        self.enable_check = check and may_be_checked(name)
        if self.enable_check:
            self.product = CheckedProduct(op, name)

    def rename(self, name: str) -> None:
        """Gives its checkpoints the name of another place."""
        self.name_prefix = name
        if self.enable_check:
            self.product.parts.rename(name)

    def held_by(self, cell: nn.Cell) -> None:
        """See `ASDBase`."""
        self.holder = cell
        if self.enable_check:
            self.product.holder = cell

    def __call__(self, x, w):
        """One output, as the bare operator."""
        # With other leading dimensions an operand is repeated, and its gradient is no product alone.
        if self.enable_check and F.shape(x)[:-2] == F.shape(w)[:-2]:
            return self.product(x, w)
        return self.op(read(x, self.parameter_type), read(w, self.parameter_type))

    @property
    def sites(self) -> list[Site]:
        """The checkpoints of the product and its two gradients; none when it does not check."""
        return self.product.sites if self.enable_check else []


class MatMulASD(ProductASD):
    """`mindspore.ops.MatMul` that checks its result and both gradients by a checksum.

    It checks when `NPU_ASD_ENABLE` is on while it is made, and only in the steps that `Checksum` chooses. Outputs and
    gradients are those of the bare operator, bit for bit. bfloat16 on a CPU, which has no kernel for it, is a float32
    product that is rounded.

    Args:
        *args: As `mindspore.ops.MatMul`: `transpose_a`, `transpose_b`.
        **kwargs: The same by name.

    Example:
        >>> class Head(nn.Cell):  # doctest: +SKIP
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.weight = Parameter(Tensor(np.ones((8, 4), np.float32)))
        ...         self.matmul = MatMulASD(transpose_b=True)
        ...     def construct(self, x):
        ...         return self.matmul(x, self.weight)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(P.MatMul(*args, **kwargs), _next_name("MatMul"), check=Config.of_process().enabled)


class BatchMatMulASD(ProductASD):
    """`mindspore.ops.BatchMatMul` that checks its result and both gradients by a checksum; see `MatMulASD`.

    Operands whose leading dimensions differ are multiplied unchecked.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(P.BatchMatMul(*args, **kwargs), _next_name("BatchMatMul"), check=Config.of_process().enabled)


def _next_name(operator: str) -> str:
    name = f"ASD_{operator}_{ASDBase._index}"
    ASDBase._index += 1
    return name
