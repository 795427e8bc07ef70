"""Compares the weights of ranks that hold the same ones, bit by bit through hashes.

Eight bytes a rank and set of weights, see `Groups`, say whether all are alike; only when they are not,
each weight's hash is told. Weights are compared after the first step and every `weight_hash` steps. Where a comparison
takes long it has fewer turns: the ranks tell one another their wish with it, and all keep to the mean.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from math import ceil, log2

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from asd.operators.ranks.exchange import Exchange
from asd.rules.diagnosis.weights import Difference, compare_some, together

__all__ = ["WeightComparison", "hash_of", "hashes_of", "total_of"]

_BLOCK = 1 << 20  # words
_SHARE = 0.005
"""Of the time of the steps from one comparison to the next, what it may take."""
_LITTLE = 0.01
"""Seconds that need not be saved."""
_MOST_TURNS = 64
"""In one of so many turns at least weights are compared, however long it takes."""


class WeightComparison:
    """Of one training on one rank; all ranks make the same calls.

    Args:
        weights: The weights of the network.
        exchange: The ranks, and which of them hold the same.
        every: Steps between two comparisons, at least; 0 for none at all.

    Attributes:
        every: Steps between two comparisons, as the ranks agreed; 0 for none any more.
        alike: The last step after which all that hold the same had the same weights; None before the first comparison.
    """

    def __init__(self, weights: Iterable[Parameter], exchange: Exchange, every: int) -> None:
        self._exchange, self._least, self.every = exchange, every, every
        self.alike: int | None = None
        self._first = True
        self._seconds = 0.0
        groups = exchange.groups
        self._holders = dict(groups.holders)
        own = groups.labels[exchange.rank]
        self._sets: dict[str, list[Parameter]] = {label: [] for label in own if label in self._holders}
        for weight in weights:
            self._sets.get(groups.label_of(weight.name), []).append(weight)
        self._width = max(map(len, groups.labels))
        if not self._holders:
            self.every = 0

    @property
    def active(self) -> bool:
        """Whether weights are compared at all."""
        return self.every > 0

    def wish(self, step_seconds: float) -> int:
        """Of how many turns the weights should be compared in one, by what that took last.

        Args:
            step_seconds: What a step takes.
        """
        if self._seconds < _LITTLE or step_seconds <= 0:
            return 1
        return min(_MOST_TURNS, ceil(self._seconds / (_SHARE * self._least * step_seconds)))

    def roll_back(self, step: int) -> None:
        """Forgets what was known of `step`, which has just been made, and of later ones, in a life before this one."""
        if self.alike is not None and self.alike >= step:
            self.alike = step - 1

    def _agree(self, wish: float) -> None:
        if self.active:  # a power of two, for the mean is another each time
            self.every = self._least * 2 ** ceil(log2(max(wish, 1)))

    def after(self, step: int, *, wish: int = 1) -> Difference | None:
        """Compares, if it is time; a call of all ranks.

        Args:
            step: The step that has just been made.
            wish: As `wish`.

        Returns:
            What was found, None when all are alike or it is not time.

        Raises:
            RankLostError: A rank did not answer.
        """
        if not self.active or not (self._first or step % self.every == 0):
            return None
        self._first = False
        found = together(self._compare(wish))
        if found is None:
            self.alike = step
        elif self.alike is None and not found.odd:
            # Nothing was damaged: they were never alike, and no later comparison could tell a fault from that.
            self.every = 0
        return found

    def _compare(self, wish: int) -> list[Difference]:
        hashes = self._hashes()
        told = self._tell(hashes, wish)
        self._agree(sum(row[0] for row in told) / len(told))
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

    def _hashes(self) -> dict[str, list[int]]:
        begin = time.perf_counter()
        hashes = {label: hashes_of(weights) for label, weights in self._sets.items()}
        self._seconds = time.perf_counter() - begin
        return hashes

    def _tell(self, hashes: dict[str, list[int]], wish: int) -> list[tuple[int, ...]]:
        """By rank: the wish, and the total of each set of weights in the order of labels."""
        message = struct.Struct(f"<{1 + self._width}Q")
        own = self._exchange.groups.labels[self._exchange.rank]
        totals = [total_of(hashes[label]) if label in hashes else 0 for label in own]
        parcel = message.pack(wish, *totals, *[0] * (self._width - len(totals)))
        return [message.unpack(each) for each in self._exchange.gather(parcel, message.size)]


def hashes_of(weights: Iterable[Parameter]) -> list[int]:
    """A 64-bit hash of the bits of each weight."""
    return [hash_of(_bits(weight)) for weight in weights]


def total_of(hashes: Iterable[int]) -> int:
    """One 64-bit number of many; their order counts."""
    total = 0
    for one in hashes:
        total = (31 * total + one) % 2**64
    return total


def hash_of(array: np.ndarray) -> int:
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
    weight = weight.to_local() if hasattr(weight, "to_local") else weight
    if weight.dtype == ms.bfloat16:  # NumPy lacks it; float32 holds each of its values
        weight = weight.astype(ms.float32)
    array: np.ndarray = weight.asnumpy()
    return array
