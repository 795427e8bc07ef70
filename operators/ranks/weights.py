"""Compares the weights of ranks that hold the same ones, bit by bit through hashes.

Eight bytes a rank and set of weights, see `asd.diagnosis.groups`, say whether all are alike; only when they are not,
each weight's hash is told. Weights are compared
after the first step, every `ASD_WEIGHT_HASH` steps, and after the step that follows a checkpoint: the ranks that wrote
none learn of it by the gate's all-reduce of that step.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from asd.diagnosis.weights import Difference, compare_some, together
from asd.operators.kernel import library as kernel
from asd.operators.ranks.exchange import Exchange

__all__ = ["WeightComparison", "hash_of", "hash_without_kernel", "hashes_of", "total_of"]

_BLOCK = 1 << 20  # words


class WeightComparison:
    """Of one training on one rank; all ranks make the same calls.

    Args:
        weights: The weights of the network.
        exchange: The ranks, and which of them hold the same.
        every: Steps between two comparisons; 0 for none at all.

    Attributes:
        alike: The last step after which all that hold the same had the same weights; None before the first comparison.
    """

    def __init__(self, weights: Iterable[Parameter], exchange: Exchange, every: int) -> None:
        self._exchange, self._every = exchange, every
        self.alike: int | None = None
        self._first = True
        groups = exchange.groups
        self._holders = dict(groups.holders)
        own = groups.labels[exchange.rank]
        self._sets: dict[str, list[Parameter]] = {label: [] for label in own if label in self._holders}
        for weight in weights:
            self._sets.get(groups.label_of(weight.name), []).append(weight)
        self._width = max(map(len, groups.labels))
        if not self._holders:
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
        found = together(self._compare())
        if found is None:
            self.alike = step
        elif self.alike is None and not found.odd:
            # Nothing was damaged: they were never alike, and no later comparison could tell a fault from that.
            self._every = 0
        return found

    def _compare(self) -> list[Difference]:
        use_kernel = kernel.library is not None
        hashes = self._hashes(use_kernel=use_kernel)
        told = self._tell(hashes, use_kernel=use_kernel)
        if len({row[0] for row in told}) > 1:  # another rank's machine had no C++ compiler
            hashes = self._hashes(use_kernel=False)
            told = self._tell(hashes, use_kernel=False)
        total = self._exchange.groups.total_of
        unlike = [
            label
            for label, ranks in self._holders.items()
            if len({total(told[rank], rank, label) for rank in ranks}) > 1
        ]
        if not unlike:
            return []
        names = {label: [weight.name for weight in weights] for label, weights in self._sets.items()}
        mine = {label: dict(zip(names[label], hashes[label], strict=True)) for label in unlike if label in hashes}
        words = self._exchange.tell(hashes=mine)
        found = (
            compare_some(self._holders[label], [word["hashes"].get(label, {}) for word in words]) for label in unlike
        )
        return [each for each in found if each is not None]

    def _hashes(self, *, use_kernel: bool) -> dict[str, list[int]]:
        return {label: hashes_of(weights, use_kernel=use_kernel) for label, weights in self._sets.items()}

    def _tell(self, hashes: dict[str, list[int]], *, use_kernel: bool) -> list[tuple[int, ...]]:
        """By rank: whether the kernel hashes, and the total of each set of its weights, in the order of its labels."""
        message = struct.Struct(f"<{1 + self._width}Q")
        own = self._exchange.groups.labels[self._exchange.rank]
        totals = [total_of(hashes[label]) if label in hashes else 0 for label in own]
        parcel = message.pack(use_kernel, *totals, *[0] * (self._width - len(totals)))
        return [message.unpack(each) for each in self._exchange.gather(parcel, message.size)]


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
