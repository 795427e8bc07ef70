"""Sizes of updates: by how much a step changes weights, a sixteenth of them in turn."""

from collections.abc import Sequence

import numpy as np
from mindspore import Parameter, Tensor
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.gate.statistics import statistics
from asd.operators.private.cells import without_gradients
from asd.operators.private.layout import local

TURNS = 16  # steps within which all weights have their turn; fewer where there are fewer weights


class UpdateReading:
    """Reader of the changes that updates make; nothing waits for the device until the step's values are read."""

    def __init__(self, weights: Sequence[Parameter]) -> None:
        sizes = {i: size for i, each in enumerate(weights) if (size := local(each).size)}
        self._weights, self._turn = weights, 0
        self._turns: list[list[int]] = [[] for _ in range(min(TURNS, len(sizes)))]
        for i in sorted(sizes, key=sizes.__getitem__, reverse=True):
            min(self._turns, key=lambda turn: sum(sizes[each] for each in turn)).append(i)
        self._kept: list[Tensor] = []
        self._found: list[float] = []

    def _due(self) -> list[Tensor]:
        return [F.stop_gradient(local(self._weights[i])) for i in self._turns[self._turn]]

    def keep(self) -> None:
        """Copies the weights whose turn it is, before an update; once for each step."""
        if self._turns and not self._kept:
            with without_gradients():
                self._kept = [each.copy() for each in self._due()]

    def measure(self) -> Tensor | None:
        """Returns the largest change of each of them, float32 on the device; None where nothing was kept."""
        kept, self._kept = self._kept, []
        if not kept or [each.shape for each in kept] != [each.shape for each in self._due()]:  # now divided
            return None
        with without_gradients():
            return statistics([P.Sub()(new, old) for new, old in zip(self._due(), kept, strict=True)], largest=True)

    def take(self, found: np.ndarray) -> None:
        """Takes what `measure` returned, once it is on the host."""
        self._found = found.tolist()

    def changes(self) -> dict[int, float]:
        """Returns the changes of the last step by number of the weight, without zeros; the next ones are due then."""
        found, self._found, self._kept = self._found, [], []
        due = self._turns[self._turn] if found else []
        self._turn = (self._turn + bool(found)) % max(len(self._turns), 1)
        return {i: value for i, value in zip(due, found, strict=True) if value != 0.0}
