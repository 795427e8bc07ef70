"""An optimizer's weights and state on a device, read by MindSpore operators: all of them in every so many steps."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from statistics import median

import mindspore as ms
import numpy as np
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.measure.state.optimizer_state import OptimizerState
from asd.operators.measure.state.snapshot import SELDOM, Snapshot
from asd.operators.measure.statistics import statistics_by_operators

__all__ = ["StateTensors"]

_RECENT = 33


class StateTensors:
    """Each tensor is one block; nothing is hashed.

    Args:
        state: What is read.

    Attributes:
        every: Steps from one reading to the next.
        tensor_of: Per block the number of its tensor.
        unread: None.
    """

    def __init__(self, state: OptimizerState) -> None:
        self.every = 1
        self.tensor_of = np.arange(len(state.parameters))
        self.unread: list[str] = []
        self._state = state
        self._seconds: deque[float] = deque(maxlen=_RECENT)

    def due(self, step: int) -> bool:
        """Whether the tensors are read after this step."""
        return step % self.every == 0

    def read(self, step: int, *, extremes: bool = True) -> Snapshot:
        """All tensors as they are now."""
        begin = time.perf_counter()
        found: list[Sequence[float]] = []
        for group in self._state.groups if extremes else ():
            for parameter in group.parameters:
                features, bad = statistics_by_operators(parameter)
                lowest = float(P.ReduceMin()(parameter.astype(ms.float32)).asnumpy()) if group.second_moment else 0.0
                found.append((math.nan if bad.asnumpy() else float(features.asnumpy()[0]), lowest))
        self._seconds.append(time.perf_counter() - begin)
        all_of_them = self.tensor_of
        read = np.array(found, np.float64).reshape(-1, 2)
        return Snapshot(0, 1, [], all_of_them, all_of_them, np.empty(0, np.uint64), read)

    @property
    def coverage(self) -> float:
        """See `StateReader`."""
        return 1 / self.every

    def price(self) -> float:
        """See `StateReader`."""
        return median(self._seconds) if self._seconds else 0.0

    def pace(self, seconds: float) -> None:
        """Chooses `every`."""
        if self._seconds:
            self.every = min(SELDOM, math.ceil(self.price() / seconds)) if seconds > 0 else SELDOM
