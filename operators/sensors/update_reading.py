"""Sizes of updates: by how much a step changes weights, a sixteenth of them in turn."""

from collections.abc import Sequence

import numpy as np
from mindspore import Parameter, Tensor
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.gate.statistics import SMALL, statistics
from asd.operators.private.cells import without_gradients
from asd.operators.private.layout import local

TURNS = 16  # steps within which all weights have their turn; fewer where there are fewer weights
_PAUSE, _FEW = 4, 16 * SMALL
"""A network of at most so many elements is measured in each fourth step, a quarter of it, as its steps are short."""


class UpdateReading:
    """Reader of the changes that updates make; nothing waits for the device until the step's values are read."""

    def __init__(self, weights: Sequence[Parameter]) -> None:
        sizes = {i: size for i, each in enumerate(weights) if (size := local(each).size)}
        self._weights, self._turn = weights, 0
        self._every = _PAUSE if sum(sizes.values()) <= _FEW else 1
        self._turns: list[list[int]] = [[] for _ in range(min(TURNS // self._every, len(sizes)))]
        for i in sorted(sizes, key=sizes.__getitem__, reverse=True):
            min(self._turns, key=lambda turn: sum(sizes[each] for each in turn)).append(i)
        self._kept: list[Tensor] = []
        self._found: list[float] = []

    def _due(self) -> list[Tensor]:
        return [F.stop_gradient(local(self._weights[i])) for i in self._turns[self._turn // self._every]]

    def keep(self) -> None:
        """Copies the weights whose turn it is, before an update; once for each step."""
        if self._turns and not self._kept and self._turn % self._every == 0:
            with without_gradients():
                self._kept = [each.copy() for each in self._due()]

    def measure(self) -> Tensor | None:
        """Returns the largest change of each of them, float32 on the device; None where nothing was kept."""
        kept, self._kept = self._kept, []
        if not kept or [each.shape for each in kept] != [each.shape for each in self._due()]:  # now divided
            return None
        with without_gradients():
            changes = [P.Sub()(new, old) for new, old in zip(self._due(), kept, strict=True)]
            return statistics(changes, largest=True, alike=True)

    def take(self, found: np.ndarray) -> None:
        """Takes what `measure` returned, once it is on the host."""
        self._found = found.tolist()

    def changes(self) -> dict[int, float]:
        """Returns the changes of the last step by number of the weight, without zeros; the next ones are due then."""
        found, self._found, self._kept = self._found, [], []
        due = self._turns[self._turn // self._every] if found else []
        if found or self._turn % self._every:
            self._turn = (self._turn + 1) % (self._every * len(self._turns))
        return {i: value for i, value in zip(due, found, strict=True) if value != 0.0}
