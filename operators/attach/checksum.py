"""Checksums on what a network computes, products, norms and more: which, how often, and when all of them.

Checking everything costs too much, so each of them is due in one step of sixteen, in turn. All of this rank are due for
a while after anything suspicious, and where a second look makes a step again. Whose turn it is follows from the number
of the step: a resumed training goes on where it stopped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mindspore import nn

from asd.errors import ConfigError, UnsupportedError
from asd.operators.attach.checked_places import places, unchecked_places
from asd.operators.attach.install import compile_patterns
from asd.operators.attach.left_out import leave_out
from asd.operators.private.layout import why_products_are_unchecked
from asd.operators.table.gate import Gate
from asd.operators.table.site import Site
from asd.operators.table.slots import table
from asd.rules.checksum import EVERY, SUSPICIOUS_STEPS

__all__ = ["Checksum", "claim_checked", "install_checksum"]


class Checksum:
    """The checksums of one training.

    A `StepMonitor` uses it by itself: `StepMonitor(checksum=True)`, or with one of these. Without a monitor call
    `install` before the first step and `begin_step` before each; the scores are in the slots, see `slots.table`.

    Each monitor has a schedule of its own; all `Checksum` without a monitor share one: what was said last is in force.

    Attributes:
        gate: That of the monitor it is used by, if any.
        coverage: The share of all that was due in the step that `begin_step` spoke of.

    Args:
        every: Each product and each norm is due in one step of so many; with 0 in none but the others named here.
        suspicious_steps: So many steps all are due after a suspicion; 0 for none.
        include: Regular expressions; only layers whose name one of them matches are checked; all if not given.
        exclude: Regular expressions; layers whose name one of them matches are not checked. It wins over `include`.

    Raises:
        ConfigError: An argument is not valid.

    Example:
        >>> checksum = Checksum(every=16, exclude="lm_head")
        >>> monitor = StepMonitor(Config(enable=1), checksum=checksum)  # doctest: +SKIP
        >>> monitor.attach(net, optimizer)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        every: int = EVERY,
        suspicious_steps: int = SUSPICIOUS_STEPS,
        include: str | Iterable[str] = (),
        exclude: str | Iterable[str] = (),
    ) -> None:
        for name, value in (("every", every), ("suspicious_steps", suspicious_steps)):
            if type(value) is not int or value < 0:
                raise ConfigError(name, value, "valid is a whole number from 0 on")
        self.every, self.suspicious_steps = every, suspicious_steps
        self._include, self._exclude = compile_patterns("include", include), compile_patterns("exclude", exclude)
        self.gate: Gate | None = None
        self.coverage = 0.0
        self._until = 0  # all are due in every step before this one
        self._step = 0

    def install(self, net: nn.Cell) -> list[Site]:
        """Puts checks on the products, norms and more of `net`, which is not compiled yet; see `install_checksum`."""
        return install_checksum(net, include=self._include, exclude=self._exclude)

    def begin_step(self, step: int, *, suspicious: bool = False, everything: bool = False) -> None:
        """Says what is due in `step`.

        Args:
            step: Number of the step that comes next.
            suspicious: Whether the step before it was; then all are due for `suspicious_steps` steps.
            everything: Whether all are due in this step in any case.
        """
        if suspicious:
            self._until = max(self._until, step + self.suspicious_steps)
        self._step = step
        self._schedule(everything=everything or step < self._until)

    def make_all_due(self) -> None:
        """All are due until the next `begin_step`."""
        self._schedule(everything=True)

    def _schedule(self, *, everything: bool) -> None:
        self.coverage = 1.0 if everything else 1 / self.every if self.every else 0.0
        table().schedule_checksums(self.every, self._step, everything, self.gate)

    def stop(self) -> None:
        """Nothing is due any more."""
        table().schedule_checksums(0, 0, False, self.gate)


def install_checksum(
    net: nn.Cell,
    *,
    include: str | Iterable[str] | Iterable[re.Pattern[str]] = (),
    exclude: str | Iterable[str] | Iterable[re.Pattern[str]] = (),
) -> list[Site]:
    """Puts a check on every product, norm, convolution, lookup and softmax that a layer of `net` holds as an operator.

    Products are `MatMul` and `BatchMatMul` in `nn.Dense`, mindformers' `Linear`, its attention, and the parallel linear
    layers of its Megatron-like models. Norms are `LayerNorm` and `RmsNorm` in `nn.LayerNorm` and mindformers' fused
    norms, their check operators, and `nn.GroupNorm`; see `NormASD` for others. `Conv2D`, `Gather` along the first axis
    and `Softmax` over the last one are checked wherever a layer holds them. Checkpoints are called after the layer:
    `layers.0.attention.wq.checksum` for the product, `layers.0.attention_norm.checksum` for the output of the norm,
    with `_dx` and `_dw` behind it for the gradients of the input and the weights. No parameter is added and no number
    of the training changes. Do it before the first step: a graph that is already compiled does not change. Nothing is
    checked until a `Checksum` says what is due.

    Args:
        net: The network, or the training cell around it.
        include: Regular expressions on names of layers; all layers if not given.
        exclude: Regular expressions on names of layers; it wins over `include`.

    Returns:
        The checkpoints, those that were there already included.

    Raises:
        ConfigError: A regular expression is not valid.
        UnsupportedError: MindSpore divides the operators over the ranks.
    """
    if reason := why_products_are_unchecked():
        raise UnsupportedError(reason)
    wanted, unwanted = compile_patterns("include", include), compile_patterns("exclude", exclude)
    sites: list[Site] = []
    for place in places(net):
        chosen = not wanted or any(pattern.search(place.name) for pattern in wanted)
        if chosen and not any(pattern.search(place.name) for pattern in unwanted):
            sites += place.claim()
    for name, reason in unchecked_places(net):
        leave_out(name, reason)
    return sites


def claim_checked(net: nn.Cell) -> list[Site]:
    """Names the check operators for products and norms that `net` holds already, and returns their checkpoints."""
    return [site for place in places(net) if place.is_checked for site in place.claim()]
