"""The check operator for norms: any norm, checked by computing it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mindspore import nn

from asd.config import Config
from asd.operators.checks.base import ASDBase
from asd.operators.private.layout import may_be_checked
from asd.operators.recompute.norm import CheckedNorm
from asd.operators.table.site import Site

__all__ = ["NormASD"]


class NormASD(ASDBase):
    """A norm whose output and whose gradients are checked, when it is their turn.

    They are computed again from the same operands: y = n * gamma + beta with n = (x - mean) / sqrt(var + epsilon), and
    the gradients of x, gamma and beta. Outputs
    and gradients are those of the bare norm, bit for bit, where that is one operator. One that is made of several takes
    its input from a node of its own with the check, so PyNative may add gradients of a residual in another order.

    `Checksum` and `install_checksum` put it on the norms of a network by themselves. Use it for one that a network
    computes itself.

    Args:
        norm: A callable of x, gamma and beta, or of x and gamma without `shifted`, that returns y in the type and shape
            of x, or a tuple that begins with y as `mindspore.ops.LayerNorm` and `mindspore.ops.RmsNorm` do. Nothing
            differentiable may come from the rest of that tuple: only the way through y is computed again.
        name: Name of the place, such as `layers.0.norm`.
        groups: Of channels that are normalized together, for x of shape (N, C, ...); 0 for the last axes, as many
            elements as gamma has.
        centred: Whether the mean is taken away; False for RMSNorm.
        epsilon: Added to the variance.
        shifted: Whether there is a beta.
        check: Whether to check; what `NPU_ASD_ENABLE` says if not given.

    Example:
        >>> norm = NormASD(lambda x, gamma, beta: ops.group_norm(x, 8, gamma, beta), "norm", groups=8)  # doctest: +SKIP
    """

    def __init__(
        self,
        norm: Callable[..., Any],
        name: str,
        *,
        groups: int = 0,
        centred: bool = True,
        epsilon: float = 1e-5,
        shifted: bool = True,
        check: bool | None = None,
    ) -> None:
        # Not ASDBase's own: what is checked here is the norm, not the gradient of one input.
        self.op = norm
        self.name_prefix = name
        wanted = Config.of_process().enabled if check is None else check
        self.enable_check = wanted and may_be_checked(name)
        if self.enable_check:
            self.checked = CheckedNorm(norm, name, groups=groups, centred=centred, epsilon=epsilon, shifted=shifted)

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

    def __call__(self, *operands):
        """What the bare norm returns."""
        if self.enable_check:
            return self.checked(*operands)
        return self.op(*operands)

    @property
    def sites(self) -> list[Site]:
        """The checkpoints of the output and of the gradients; none when it does not check."""
        return self.checked.sites if self.enable_check else []
