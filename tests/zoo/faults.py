"""A fault of our own: one number becomes enormous once, as a processor makes it that fails once and is well again."""

import numpy as np
from mindspore import nn


class Strike:
    """Multiplies the largest element of the first array that it is given in `step`, from 1, by `factor`.

    `now` is the step that is being made; `told` has what it did, and is empty as long as it did nothing.
    """

    def __init__(self, step: int, factor: float) -> None:
        self.step, self.factor, self.now, self.told = step, factor, 0, ""

    def __call__(self, array: np.ndarray) -> np.ndarray:
        if self.now != self.step or self.told:
            return array
        faulty = np.array(array)
        flat = faulty.reshape(-1)
        at = int(np.argmax(np.abs(np.nan_to_num(flat))))
        with np.errstate(over="ignore"):
            flat[at] = np.float64(flat[at] or 1.0) * self.factor
        self.told = f"{array.dtype.name} {np.ravel(array)[at]:.3g} -> {flat[at]:.3g}"
        return faulty


def products(network: nn.Cell) -> list[tuple[str, nn.Cell]]:
    """The layers that multiply matrices; O1 has given them classes of its own, such as `DenseOpt_1`."""
    named = ((name, cell, type(cell).__name__) for name, cell in network.cells_and_names())
    return [(name, cell) for name, cell, kind in named if kind.startswith(("Dense", "Conv2d"))]


def put_behind(cell: nn.Cell, other: nn.Cell) -> None:
    """From now on the output of `cell` goes through `other`."""
    base = type(cell)

    class Followed(base):
        def construct(self, *args, **kwargs):
            return self.zoo_behind(super().construct(*args, **kwargs))

    Followed.__name__ = base.__name__
    cell.zoo_behind = other
    cell.__class__ = Followed
