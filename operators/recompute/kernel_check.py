"""A check by a function of the C++ library, which knows whether it is its turn."""

from __future__ import annotations

import time
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
        slots: Any = table()
        self.look, self.sites = kernel_function(function), tuple(sites)
        self.is_due, self.note_call = slots.is_due, slots.note_call
        self.facts: tuple[Tensor, ...] = (Tensor([*(site.slot for site in sites), *facts], ms.int32),)
        if numbers:
            self.facts += (Tensor(list(numbers), ms.float32),)

    def __call__(self, *tensors: Tensor) -> Any:
        """In PyNative, where a call that is not due would still take its time, and copy each tensor that is a view."""
        if not any(map(self.is_due, self.sites)):
            return tensors[-1]
        begin = time.perf_counter()
        seen = super().__call__(*tensors)
        self.note_call(time.perf_counter() - begin)
        return seen

    def construct(self, *tensors):
        """What the function returns, a number that nobody needs."""
        return self.look(*tensors, *self.facts)
