"""The loss scale in force: feature values are multiplied by it and must be divided by it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log2
from statistics import median
from typing import Any

from mindspore import Tensor, nn

from asd.errors import ConfigError
from asd.rules.reading import GRADIENT, Reading

_FEWEST, _ALIKE = 4, 4
_DIVIDED, _LARGE = 8, 6  # bits: no healthy gradient of an activation is so far above those of parameters, or above 1


class LossScale:
    """Reads the loss scale from wherever the training keeps it.

    Args:
        source: A number, a Tensor or Parameter that holds one, an object with `scale_value` such as
            `mindspore.amp.DynamicLossScaler`, or None for 1.
        dynamic: Whether the scale is found by overflowing; None to tell it from the type of `source`.
    """

    def __init__(self, source: Any = None, *, dynamic: bool | None = None) -> None:
        holder = getattr(source, "scale_value", source)
        valid = "it must be a number above 0, a Tensor with one element, or an object with scale_value"
        if holder is not None and not isinstance(holder, (int, float, Tensor)):
            raise ConfigError("loss_scale", type(source).__name__, valid)
        self._holder = holder
        self.dynamic = dynamic if dynamic is not None else _is_dynamic(source)
        # the scale where it never changes; None where it has to be read
        self.fixed = None if isinstance(holder, Tensor) else self.read()
        if not self.read() > 0:
            raise ConfigError("loss_scale", self.read(), valid)

    def read(self) -> float:
        """Returns the scale of the next step; costs one read-back only where a Tensor holds it."""
        if not isinstance(self._holder, Tensor):
            return float(self._holder if self._holder is not None else 1)
        return float(self._holder.asnumpy().reshape(-1)[0])

    @staticmethod
    def shown_by(readings: Sequence[Reading], upper: tuple[float, float]) -> float:
        """Returns the scale that the values of a first step show where none was given; 0 where they show none.

        A fault at one site leaves earlier sites unchanged, and its gradient reaches those of the parameters unchanged.
        With a scale all gradients of activations are too large, and those at the optimizer are unscaled. Where the
        program does not unscale them, all values are large.

        Args:
            readings: Readings of the first step that has some.
            upper: The absolute thresholds.
        """
        inner = [each.value for each in readings if each.kind == GRADIENT and each.value > 0]
        outer = [each.value for each in readings if each.kind != GRADIENT and each.value > 0]
        if not inner or not upper[1] < max(inner) < inf or max(outer, default=0.0) == inf:
            return 0.0
        bits = log2(median(inner) / median(outer)) if outer else 0.0
        if bits < _DIVIDED:
            both = inner + outer
            all_large = len(both) >= _FEWEST and max(inner) > upper[0] and min(both) >= 2**_LARGE
            bits = log2(median(inner)) if all_large else 0.0
        return 2.0 ** round(bits) if bits else 0.0

    @staticmethod
    def are_alike(*shown: float) -> bool:
        """Returns whether several steps or ranks have shown one scale: gradients of other data are a little larger."""
        return 0 < max(shown) <= _ALIKE * min(shown)

    @classmethod
    def of(cls, train_network: nn.Cell) -> LossScale:
        """Finds the scale of a training cell of MindSpore or mindformers, inside wrappers too.

        `scale_sense` is that of `TrainOneStepWithLossScaleCell` and mindformers' `MFTrainOneStepCell`, `sens` the
        constant of `TrainOneStepCell`.
        """
        for _, cell in train_network.cells_and_names():
            scale_sense = getattr(cell, "scale_sense", None)
            if isinstance(scale_sense, (Tensor, int, float)):
                return cls(scale_sense, dynamic=_is_dynamic(getattr(cell, "loss_scaling_manager", None)))
            if isinstance(cell, nn.TrainOneStepCell) and isinstance(cell.sens, (int, float)):
                return cls(abs(cell.sens))  # below 0 the training ascends
        return cls()


def _is_dynamic(scaler: Any) -> bool:
    """Returns whether a scaler finds its scale by overflowing: one of MindSpore or mindformers, or derived from it."""
    return any(word in each.__name__ for each in type(scaler).__mro__ for word in ("Dynamic", "AdaptiveLossScale"))
