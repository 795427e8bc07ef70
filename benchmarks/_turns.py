"""Times trainings against one another, fairly: the same batches, in turns, in one process, two trainings of each kind.

Equal trainings in one process are not equally fast: of a large model in graph mode the one built last took 1 or 2 %
longer, of others up to 8 %, more than most of what is measured here. So two of each kind are built, in the order bare,
watched, watched, bare, and a turn's ratio is that of the two sums. How much the order alone does is told beside it.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from _timing import spread
from mindspore import Tensor

Step = Callable[[Tensor], float]
"""Makes one step with a batch and returns its loss."""

_ORDERS = ((0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1))
"""Of the four trainings within a turn: each is in each place as often as the others."""


class Comparison(NamedTuple):
    """What was measured, a number for each turn."""

    step_seconds: list[float]  # of a bare step
    ratio: list[float]  # of watched steps to bare ones, by the clock
    processor: list[float]  # the same by the processor's time, which other programs disturb less
    order: list[float]  # of the bare training built last to the one built first: what is no cost of watching
    first: float  # of the first watched step built last to the first bare one built last, by the processor's time
    steps: tuple[list[float], ...]  # of each training: the processor's time of each step but the first

    def summary(self) -> dict[str, Any]:
        """For JSON: each with its quartiles; the sum of all steps but the first, and the longest step in medians."""
        bare, watched = (np.add(*(self.steps[each] for each in pair)) for pair in ((0, 3), (1, 2)))
        return {
            "step_seconds": spread(self.step_seconds),
            "ratio": spread(self.ratio),
            "processor": spread(self.processor),
            "built_later_alone": spread(self.order),
            "first_step": self.first,
            "sum": {"ratio": float(watched.sum() / bare.sum()), "steps": len(bare)},
            "longest_step": {
                name: float(max(max(each) / np.median(each) for each in (self.steps[a], self.steps[b])))
                for name, a, b in (("without", 0, 3), ("with", 1, 2))
            },
        }


def in_turns(
    bare: Callable[[], Step],
    watched: Callable[[], Step],
    source: Iterator[np.ndarray],
    turns: int,
    *,
    steps: int,
    warm_up: int = 3,
) -> Comparison:
    """Compares two kinds of training.

    Args:
        bare: Builds a training to compare with.
        watched: Builds one that has to have the same losses, bit for bit.
        source: Batches.
        turns: How many; a multiple of four treats all alike.
        steps: Of each training in a turn.
        warm_up: Steps of each before the first turn.

    Raises:
        AssertionError: Losses differ.
    """
    trainings = [bare(), watched(), watched(), bare()]
    computed_of: tuple[list[float], ...] = ([], [], [], [])

    def run(which: int, batches: list[Tensor]) -> list[float]:
        losses = []
        for batch in batches:
            began = time.process_time()
            losses.append(trainings[which](batch))
            computed_of[which].append(time.process_time() - began)
        return losses

    first_batches = [Tensor(next(source)) for _ in range(warm_up)]
    losses_of = [run(which, first_batches) for which in range(len(trainings))]
    assert all(each == losses_of[0] for each in losses_of), "watching changed the loss"
    firsts = [each.pop(0) for each in computed_of]
    found = Comparison([], [], [], [], firsts[2] / firsts[3], computed_of)
    for turn in range(turns):
        batches = [Tensor(next(source)) for _ in range(steps)]
        took = [0.0] * len(trainings)
        losses: dict[int, list[float]] = {}
        for which in _ORDERS[turn % len(_ORDERS)]:
            began = time.perf_counter()
            losses[which] = run(which, batches)
            took[which] = time.perf_counter() - began
        computed = [sum(each[-steps:]) for each in computed_of]
        assert all(each == losses[0] for each in losses.values()), "watching changed the loss"
        first, *both, last = took
        found.step_seconds.append((first + last) / 2 / steps)
        found.ratio.append(sum(both) / (first + last))
        found.processor.append(sum(computed[1:3]) / (computed[0] + computed[3]))
        found.order.append(last / first)
    return found
