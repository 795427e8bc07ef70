"""The check operator for what is neither a product nor a norm: its result and its gradients are computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import nn

from asd.operators.checks.base import ASDBase
from asd.operators.private.layout import may_be_checked
from asd.operators.private.mixed_precision import read
from asd.operators.recompute.call import CheckedCall
from asd.operators.recompute.convolution import checked_convolution
from asd.operators.recompute.lookup import checked_lookup
from asd.operators.recompute.softmax import checked_softmax
from asd.operators.table.site import Site

__all__ = ["CallASD", "can_be_called"]

_MAKERS: dict[str, Callable[[Any, str], CheckedCall]] = {
    "Conv2D": checked_convolution,
    "Gather": checked_lookup,
    "Softmax": checked_softmax,
}
"""By the name of the operator's class."""

_WITH_AXIS = 2
"""Further operands of a `Gather`."""


def can_be_called(operator: Any) -> bool:
    """Whether `CallASD` has checks for an operator of MindSpore."""
    if type(operator).__name__ not in _MAKERS:
        return False
    # Along the last axis of a softmax; the first one of a lookup is asked for by each call.
    axis, batches = getattr(operator, "axis", -1), getattr(operator, "batch_dims", 0)
    return axis in (-1, (-1,)) and batches == 0 and getattr(operator, "format", "NCHW") == "NCHW"


class CallASD(ASDBase):
    """An operator of one or two operands with checks of its result and of both gradients, when it is their turn.

    Args:
        op: A `Conv2D`, a `Gather`, or a `Softmax` over the last axis.
        name: Name of the place, such as `layers.0.conv`.
        check: Whether to check.

    Attributes:
        checked: The checked call; only with `check`.
    """

    def __init__(self, op: Any, name: str, *, check: bool) -> None:
        # Not ASDBase's own: what is checked here is the operator, not the gradient of one input.
        self.op = op
        self.name_prefix = name
        self.enable_check = check and may_be_checked(name)
        if self.enable_check:
            self.checked = _MAKERS[type(op).__name__](op, name)

    def rename(self, name: str) -> None:
        """Gives its checkpoints the name of another place."""
        self.name_prefix = name
        if self.enable_check:
            self.checked.rename(name)

    def held_by(self, cell: nn.Cell) -> None:
        """See `ASDBase`."""
        self.holder = cell
        if self.enable_check:
            self.checked.holder = cell

    def __call__(self, a, *more):
        """What the bare operator returns; a `Gather` along another axis than the first is not checked."""
        if self.enable_check and len(more) < _WITH_AXIS:
            return self.checked(a, *more)
        if self.enable_check and more[1] == 0:
            return self.checked(a, more[0])
        a = read(a, self.parameter_type)
        return self.op(a, read(more[0], self.parameter_type), *more[1:]) if more else self.op(a)

    @property
    def sites(self) -> list[Site]:
        """The checkpoints of the result and of the gradients; none when it does not check."""
        return self.checked.sites if self.enable_check else []
