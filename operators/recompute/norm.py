"""A norm that is checked by computing it again: forward, and the gradients of its input and its weights.

The results are those of the bare norm, bit for bit: it is called on the same tensors, between two identities. The first
hands x on twice. The second takes in the other x and gives it the gradient of y, so that the backward pass of the first
sees all there is to check: x, dy, and what the norm made of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import nn
from mindspore.ops import functional as F  # noqa: N812

from asd.operators.measure.tap import alias, hidden
from asd.operators.private.mixed_precision import CheckCell, as_operator_reads, read, type_of_own_holder
from asd.operators.recompute.kernel_check import KernelCheck
from asd.operators.recompute.norm_operators import OperatorNorm
from asd.operators.table.site import Site
from asd.operators.table.slots import by_backend, table
from asd.rules.readings.reading import NORM

__all__ = ["CheckedNorm"]

_SUFFIX = ".checksum"
_PARTS = ("", "_dx", "_dw")


class CheckedNorm(nn.Cell):
    """`norm(x, gamma, beta)` with its checks.

    Args:
        norm: Any callable of x, gamma and beta, or of x and gamma, that returns y or a tuple that begins with it.
        name: Name of the place; its checkpoints are `name.checksum`, `name.checksum_dx` and `name.checksum_dw`.
        groups: See `asd.operators.kernel.norm.check_norm`.
        centred: See there.
        epsilon: See there.
        shifted: Whether there is a beta.

    Attributes:
        holder: The cell whose code calls it; None where that is not known.
        sites: The checkpoints of y, of dx, and of the gradients of gamma and beta.
    """

    parameter_type = property(type_of_own_holder)
    """What a compiled graph casts a Parameter to where it is called; None where it casts nothing."""

    def __init__(
        self, norm: Callable[..., Any], name: str, *, groups: int, centred: bool, epsilon: float, shifted: bool
    ) -> None:
        super().__init__(auto_prefix=False)
        slots = table()
        self.norm, self.shifted = norm, shifted
        self.sites: list[Site] = [slots.new_site(name + _SUFFIX + part, NORM) for part in _PARTS]
        self.is_due = slots.is_due  # of the table it was made for, whichever is the process's later
        self.slots = by_backend(
            kernel=lambda _: hidden(), operators=lambda each: hidden(each.worst, each.tallies, each.due)
        )
        self.holder: Any = None
        self.begin, self.end = by_backend(
            kernel=lambda _: _by_kernel(self.sites, (groups, int(centred), int(shifted)), epsilon),
            operators=lambda _: _by_operators(
                OperatorNorm(self.sites, groups=groups, centred=centred, epsilon=epsilon, shifted=shifted)
            ),
        )

    def rename(self, name: str) -> None:
        """Gives the checkpoints the name of another place."""
        for site, part in zip(self.sites, _PARTS, strict=True):
            site.name = name + _SUFFIX + part

    def __call__(self, *operands):
        """The norm in PyNative, without the cost of a backward pass in Python where nothing is due in this step."""
        if any(map(self.is_due, self.sites)):
            return super().__call__(*as_operator_reads(*operands))
        return self.norm(*operands)

    def construct(self, x, gamma, *more):
        """The norm with its checks."""
        x, gamma = read(x, self.parameter_type), read(gamma, self.parameter_type)
        beta = read(more[0], self.parameter_type) if self.shifted else F.stop_gradient(gamma)
        slots = self.slots()
        x, gamma, beta, again = self.begin(x, gamma, beta, *slots)
        outputs = self.norm(x, gamma, beta) if self.shifted else self.norm(x, gamma)
        y = outputs[0] if isinstance(outputs, tuple) else outputs
        if F.dtype(y) != F.dtype(x) or F.shape(y) != F.shape(x):
            raise TypeError("a norm that is checked must return y in the type and shape of x.")
        # What is only looked at must get no gradient, not even zeros that are added to it.
        y = self.end(y, again, F.stop_gradient(x), F.stop_gradient(gamma), F.stop_gradient(beta), *slots)
        return (y, *outputs[1:]) if isinstance(outputs, tuple) else y


def _by_kernel(sites: list[Site], layout: tuple[int, ...], epsilon: float) -> tuple[CheckCell, CheckCell]:
    forward = KernelCheck("asd_norm_forward", sites[:1], layout, [epsilon])
    return _KernelBegin(KernelCheck("asd_norm_backward", sites[1:], layout, [epsilon])), _KernelEnd(forward)


def _by_operators(check: OperatorNorm) -> tuple[CheckCell, CheckCell]:
    return _OperatorBegin(check), _OperatorEnd(check)


class _KernelBegin(CheckCell):
    """Identity of the operands, and of x once more, whose backward pass hands all gradients to the C++ library."""

    def __init__(self, check: KernelCheck) -> None:
        super().__init__()
        self.check = check

    def construct(self, x, gamma, beta):
        return alias(x), alias(gamma), alias(beta), alias(x)

    def bprop(self, x, gamma, beta, out, dout):
        dx, dgamma, dbeta, dy = dout
        done = self.check(x, gamma, dy, dx, dgamma, dbeta)
        return F.depend(dx, done), F.depend(dgamma, done), dbeta


class _KernelEnd(CheckCell):
    """Identity of y, handed to the C++ library, that tells the other x what the gradient of y is."""

    def __init__(self, check: KernelCheck) -> None:
        super().__init__()
        self.check = check

    def construct(self, y, again, x, gamma, beta):
        return F.depend(alias(y), self.check(x, gamma, beta, y))

    def bprop(self, y, again, x, gamma, beta, out, dout):
        return dout, dout, F.zeros_like(x), F.zeros_like(gamma), F.zeros_like(beta)


class _OperatorBegin(CheckCell):
    """The same with a check made of operators; a backward pass must be given the Parameters it writes."""

    def __init__(self, check: OperatorNorm) -> None:
        super().__init__()
        self.check = check

    def construct(self, x, gamma, beta, worst, tallies, due):
        return alias(x), alias(gamma), alias(beta), alias(x)

    def bprop(self, x, gamma, beta, worst, tallies, due, out, dout):
        dx, dgamma, dbeta, dy = dout
        done = self.check.backward(x, gamma, dy, dx, dgamma, dbeta, worst, tallies, due)
        zeros = F.zeros_like(worst), F.zeros_like(tallies), F.zeros_like(due)
        return F.depend(dx, done), F.depend(dgamma, done), dbeta, *zeros


class _OperatorEnd(CheckCell):
    """The same with a check made of operators, in the backward pass as that of a product."""

    def __init__(self, check: OperatorNorm) -> None:
        super().__init__()
        self.check = check

    def construct(self, y, again, x, gamma, beta, worst, tallies, due):
        return alias(y)

    def bprop(self, y, again, x, gamma, beta, worst, tallies, due, out, dout):
        dout = F.depend(dout, self.check(x, gamma, beta, y, worst, tallies, due))
        unused = F.zeros_like(x), F.zeros_like(gamma), F.zeros_like(beta)
        return dout, dout, *unused, F.zeros_like(worst), F.zeros_like(tallies), F.zeros_like(due)
