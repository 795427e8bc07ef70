"""A call of one operator of one or two operands that is checked: its result, and the gradients of its operands.

As of a matrix product, the results are those of the bare operator, bit for bit: MindSpore's own gradient of it is taken
inside a backward pass of its own, and each result is only made to depend on its check. In PyNative the operator is the
bare one where nothing is due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mindspore import nn, ops
from mindspore.ops import functional as F  # noqa: N812

from asd.operators.measure.tap import hidden
from asd.operators.private.mixed_precision import as_operator_reads, read, type_of_own_holder
from asd.operators.table.site import Site
from asd.operators.table.slots import table

__all__ = ["CheckedCall"]

_SUFFIX = ".checksum"
_PARTS = ("", "_dx", "_dw")


class CheckedCall(nn.Cell):
    """`op(a, b)` with its checks.

    Args:
        op: A callable of as many tensors that returns one; one operator, or what casts around it.
        name: Name of the place; its checkpoints are `name.checksum`, and `_dx` and `_dw` for the gradients.
        kind: Of its checkpoints.
        unary: Whether there is one operand.
        parts: Which of y, dx, the gradient of the first operand, and dw, that of the second one, are checked.
        check: Makes the check of a part from its site and its number: a cell of two operands, the result and the
            Parameters that it writes. Of y the operands are a and b, of dx b and dy, of dw a and dy; with one operand
            x, of y x twice, and of dx y and dy.

    Attributes:
        sites: The checkpoints.
        call: The operator and its checks.
        holder: The cell whose code calls it; None where that is not known.
    """

    parameter_type = property(type_of_own_holder)
    """What a compiled graph casts a Parameter to where it is called; None where it casts nothing."""

    def __init__(
        self,
        op: Callable[..., Any],
        name: str,
        kind: str,
        *,
        check: Callable[[Site, int], nn.Cell],
        parts: Sequence[int] = (0, 1, 2),
        unary: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)
        slots = table()
        self._parts = parts
        self.sites: list[Site] = [slots.new_site(name + _SUFFIX + _PARTS[part], kind) for part in parts]
        self.is_due = slots.is_due  # of the table it was made for, whichever is the process's later
        self.holder: Any = None
        made = {part: check(site, part) for site, part in zip(self.sites, parts, strict=True)}
        checks = [made.get(part, _Unchecked()) for part in range(len(_PARTS))]
        self.call = (_UnaryCall if unary else _BinaryCall)(op, checks)
        self.slots = hidden(slots.worst, slots.tallies, slots.due)

    def rename(self, name: str) -> None:
        """Gives the checkpoints the name of another place."""
        for site, part in zip(self.sites, self._parts, strict=True):
            site.name = name + _SUFFIX + _PARTS[part]

    def __call__(self, *operands):
        """The operator in PyNative, without the cost of a backward pass in Python where nothing is due in this step."""
        if any(map(self.is_due, self.sites)):
            return super().__call__(*as_operator_reads(*operands))
        return self.call.op(*operands)

    def construct(self, a, *more):
        """The operator with its checks."""
        a = read(a, self.parameter_type)
        if more:
            return self.call(a, read(more[0], self.parameter_type), *self.slots())
        return self.call(a, *self.slots())


class _Bare(nn.Cell):
    """The operator as a cell, of which MindSpore can take the gradient."""

    def __init__(self, op: Callable[..., Any]) -> None:
        super().__init__(auto_prefix=False)
        self.op = op

    def construct(self, *operands):
        return self.op(*operands)


class _Gradients(nn.Cell):
    """The gradients of the operands, as MindSpore differentiates the operator."""

    def __init__(self, op: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.op, self.of = op, ops.GradOperation(get_all=True, sens_param=True)

    def __deepcopy__(self, memo: Any) -> _Gradients:
        """Itself, for it keeps nothing, and Python can't copy a `GradOperation`."""
        return self

    def construct(self, *operands_and_dout):
        return self.of(self.op)(*operands_and_dout)


class _Unchecked(nn.Cell):
    """The place of a check where there is none."""

    def __init__(self) -> None:
        super().__init__(auto_prefix=False)

    def construct(self, a, b, result, *slots):
        return result


class _Call(nn.Cell):
    def __init__(self, op: Callable[..., Any], checks: Sequence[nn.Cell]) -> None:
        super().__init__(auto_prefix=False)
        self.op = _Bare(op)
        self.gradients = _Gradients(self.op)
        self.check, self.check_dx, self.check_dw = checks


class _BinaryCall(_Call):
    """Of two operands; all checks are in the backward pass, as those of a product."""

    def construct(self, a, b, worst, tallies, due):
        return self.op(a, b)

    def bprop(self, a, b, worst, tallies, due, out, dout):
        dout = F.depend(dout, self.check(a, b, out, worst, tallies, due))
        dx, dw = self.gradients(a, b, dout)
        dx = F.depend(dx, self.check_dx(b, dout, dx, worst, tallies, due))
        dw = F.depend(dw, self.check_dw(a, dout, dw, worst, tallies, due))
        return dx, dw, F.zeros_like(worst), F.zeros_like(tallies), F.zeros_like(due)


class _UnaryCall(_Call):
    """Of one operand; the result is needed for its gradient."""

    def construct(self, x, worst, tallies, due):
        return self.op(x)

    def bprop(self, x, worst, tallies, due, out, dout):
        dout = F.depend(dout, self.check(x, x, out, worst, tallies, due))
        (dx,) = self.gradients(x, dout)
        dx = F.depend(dx, self.check_dx(out, dout, dx, worst, tallies, due))
        return dx, F.zeros_like(worst), F.zeros_like(tallies), F.zeros_like(due)
