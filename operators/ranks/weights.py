"""Compares the weights of data-parallel ranks, bit by bit through hashes.

Eight bytes a rank say whether all are alike; only when they are not, each weight's hash is told. Weights are compared
after the first step, every `ASD_WEIGHT_HASH` steps, and after the step that follows a checkpoint: the ranks that wrote
none learn of it by the gate's all-reduce of that step.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from asd.diagnosis.weights import Difference, compare
from asd.operators.kernel import library as kernel
from asd.operators.ranks.exchange import Exchange

__all__ = ["WeightComparison", "hash_of", "hash_without_kernel", "hashes_of", "total_of"]

_LOG = logging.getLogger("asd.diagnosis.weights")
_MESSAGE = struct.Struct("<QQ")  # whether the kernel hashes, and the total
_BLOCK = 1 << 20  # words


class WeightComparison:
    """Of one training on one rank; all ranks make the same calls.

    Args:
        weights: The weights of the network.
        exchange: The ranks.
        every: Steps between two comparisons; 0 for none at all.

    Attributes:
        alike: The last step after which all ranks had the same weights; None before the first comparison.
    """

    def __init__(self, weights: Iterable[Parameter], exchange: Exchange, every: int) -> None:
        # A layerwise parallel weight is another on every rank.
        self._weights = [weight for weight in weights if not weight.layerwise_parallel]
        self._exchange, self._every = exchange, every
        self.alike: int | None = None
        self._first = True
        mode = ms.get_auto_parallel_context("parallel_mode")
        if exchange.size == 1 or not self._weights:
            self._every = 0
        elif every and mode != "data_parallel":
            _LOG.warning("weights are not compared over the ranks: that needs data_parallel, the mode is %s.", mode)
            self._every = 0

    @property
    def active(self) -> bool:
        """Whether weights are compared at all."""
        return self._every > 0

    def after(self, step: int, *, announced: bool = False) -> Difference | None:
        """Compares, if it is time; a call of all ranks.

        Args:
            step: The step that has just been made.
            announced: Whether a rank has written a checkpoint before it.

        Returns:
            What was found, None when all are alike or it is not time.

        Raises:
            RankLostError: A rank did not answer.
        """
        if not self.active or not (self._first or announced or step % self._every == 0):
            return None
        self._first = False
        found = self._compare()
        if found is None:
            self.alike = step
        elif self.alike is None and not found.odd:
            # Nothing was damaged: they were never alike, and no later comparison could tell a fault from that.
            self._every = 0
        return found

    def _compare(self) -> Difference | None:
        use_kernel = kernel.library is not None
        hashes = hashes_of(self._weights, use_kernel=use_kernel)
        told = self._tell(hashes, use_kernel=use_kernel)
        if len({by_kernel for by_kernel, _ in told}) > 1:  # another rank's machine had no C++ compiler
            hashes = hashes_of(self._weights, use_kernel=False)
            told = self._tell(hashes, use_kernel=False)
        if len(set(told)) == 1:
            return None
        rows = self._exchange.gather(np.array(hashes, np.uint64).tobytes())
        names = [weight.name for weight in self._weights]
        return compare([np.frombuffer(row, np.uint64).tolist() for row in rows], names)

    def _tell(self, hashes: Sequence[int], *, use_kernel: bool) -> list[tuple[int, int]]:
        message = _MESSAGE.pack(use_kernel, total_of(hashes))
        return [_MESSAGE.unpack(each) for each in self._exchange.gather(message, _MESSAGE.size)]


def hashes_of(weights: Iterable[Parameter], *, use_kernel: bool) -> list[int]:
    """A 64-bit hash of the bits of each weight."""
    return [hash_of(_bits(weight), use_kernel=use_kernel) for weight in weights]


def total_of(hashes: Iterable[int]) -> int:
    """One 64-bit number of many; their order counts."""
    total = 0
    for one in hashes:
        total = (31 * total + one) % 2**64
    return total


def hash_of(array: np.ndarray, *, use_kernel: bool) -> int:
    """A 64-bit hash of the bits of `array` and of their places."""
    array = np.ascontiguousarray(array)
    if use_kernel and kernel.library is not None:
        return int(kernel.library.asd_hash(array.ctypes.data, array.nbytes))
    return hash_without_kernel(array)


def hash_without_kernel(array: np.ndarray) -> int:
    """The sum of word i times 2 i + 1, modulo 2**64, over the 32-bit words of `array`; padded with zero bytes."""
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    words = np.pad(data, (0, -data.size % 4)).view("<u4") if data.size % 4 else data.view("<u4")
    total = 0
    for begin in range(0, words.size, _BLOCK):
        block = words[begin : begin + _BLOCK].astype(np.uint64)
        places = np.arange(2 * begin + 1, 2 * (begin + block.size) + 1, 2, dtype=np.uint64)
        total += int((block * places).sum(dtype=np.uint64))
    return total % 2**64


def _bits(weight: Tensor) -> np.ndarray:
    if weight.dtype == ms.bfloat16:  # NumPy lacks it; float32 holds each of its values
        weight = weight.astype(ms.float32)
    array: np.ndarray = weight.asnumpy()
    return array
