"""A check by a function of the C++ library, which knows whether it is its turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
from mindspore import Tensor

from asd.operators.measure.tap import kernel_function
from asd.operators.private.mixed_precision import CheckCell
from asd.operators.table.site import Site
from asd.operators.table.slots import table

__all__ = ["KernelCheck"]


class KernelCheck(CheckCell):
    """Hands tensors to a function of the library; returns something that depends on what it did.

    Args:
        function: Its name.
        sites: The checkpoints that it writes.
        facts: What else it has to know, as int32 behind the slots of the sites.
        numbers: The same as float32; where there are none it gets no tensor of them.
    """

    def __init__(
        self, function: str, sites: Sequence[Site], facts: Sequence[int], numbers: Sequence[float] = ()
    ) -> None:
        super().__init__()
        self.look, self.sites, self.is_due = kernel_function(function), tuple(sites), table().is_due
        self.facts: tuple[Tensor, ...] = (Tensor([*(site.slot for site in sites), *facts], ms.int32),)
        if numbers:
            self.facts += (Tensor(list(numbers), ms.float32),)

    def __call__(self, *tensors: Tensor) -> Any:
        """In PyNative, where a call that is not due would still take its time, and copy each tensor that is a view."""
        return super().__call__(*tensors) if any(map(self.is_due, self.sites)) else tensors[-1]

    def construct(self, *tensors):
        """What the function returns, a number that nobody needs."""
        return self.look(*tensors, *self.facts)
