"""Compares the weights of a replica group, bit by bit through hashes."""

import functools
import struct
from collections.abc import Iterable
from itertools import islice

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor
from mindspore.ops import auto_generate
from mindspore.ops import operations as P  # noqa: N812

from asd.diagnosis.weights import Difference, compare_some, together
from asd.operators.private.layout import local
from asd.operators.ranks.exchange import Exchange

_CAST, _SUM, _FLAT, _MUL, _CONCAT = P.Cast(), P.ReduceSum(), P.Reshape(), P.Mul(), P.Concat()
_SHIFT, _ADD = P.RightShift(), P.Add()
BLOCK = 1 << 20  # words per sum
_HALF, _BYTES = (ms.float16, ms.bfloat16, ms.int16, ms.uint16), (ms.bool_, ms.int8, ms.uint8)


class WeightComparison:
    """Comparison of weights in one training; all ranks make the same calls.

    Args:
        weights: The weights of the network.
        exchange: The ranks, and their replica groups.
        every: Steps between two comparisons; 0 for no comparison.

    Attributes:
        every: Steps between two comparisons; 0 once comparisons have ended.
        alike: Last step after which all replicas had the same weights; None before the first comparison.
    """

    def __init__(self, weights: Iterable[Parameter], exchange: Exchange, every: int) -> None:
        self._exchange, self.every = exchange, every
        self.alike: int | None = None
        self._first, self._last = True, 0
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
        """Returns whether weights are compared at all."""
        return self.every > 0

    def roll_back(self, step: int) -> None:
        """Forgets results for `step` and later steps, after the training went back to an earlier step."""
        if self.alike is not None and self.alike >= step:
            self.alike = step - 1

    def after(self, step: int) -> Difference | None:
        """Compares the weights if a comparison is due. All ranks must call it.

        Args:
            step: The step that has just been made.

        Returns:
            The difference; None when all are alike or no comparison is due.

        Raises:
            RankLostError: A rank did not answer.
        """
        last, self._last = min(self._last, step - 1), step
        # A call with sunk data makes many steps.
        if not self.active or not (self._first or step // self.every > last // self.every):
            return None
        self._first = False
        found = together(self._compare())
        if found is None:
            self.alike = step
        elif self.alike is None and not found.odd:
            # Nothing was damaged: the weights never were alike, and a later comparison could not show a fault.
            self.every = 0
        return found

    def _compare(self) -> list[Difference]:
        found = iter(hashes_of(weight for weights in self._sets.values() for weight in weights))
        hashes = {label: list(islice(found, len(weights))) for label, weights in self._sets.items()}
        told = self._tell(hashes)
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
        differences = (
            compare_some(self._holders[label], [word["hashes"].get(label, {}) for word in words]) for label in unlike
        )
        return [each for each in differences if each is not None]

    def _tell(self, hashes: dict[str, list[int]]) -> list[tuple[int, ...]]:
        """Returns each rank's totals, one for each set of weights in the order of labels."""
        message = struct.Struct(f"<{self._width}Q")
        own = self._exchange.groups.labels[self._exchange.rank]
        totals = [total_of(hashes[label]) if label in hashes else 0 for label in own]
        parcel = message.pack(*totals, *[0] * (self._width - len(totals)))
        return [message.unpack(each) for each in self._exchange.gather(parcel, message.size)]


def odd_numbers() -> np.ndarray:
    """Returns the factors of a block's words, uint32 of shape (BLOCK,): odd and scattered, so that order counts."""
    mixed = np.arange(1, BLOCK + 1, dtype=np.uint32) * np.uint32(0x9E3779B1)
    mixed = np.bitwise_xor(mixed, mixed >> np.uint32(15)) * np.uint32(0x85EBCA77)
    odd: np.ndarray = np.bitwise_xor(mixed, mixed >> np.uint32(13)) | np.uint32(1)
    return odd


def hashes_of(tensors: Iterable[Tensor]) -> list[int]:
    """Returns a hash of the bits of each tensor, of any shape and type, of a sharded one of this rank's shard."""
    sums = [_sums(local(each)) for each in tensors]
    if not sums:
        return []
    found = _CONCAT(sums).asnumpy().view(np.uint32).tolist()
    ends = np.cumsum([each.shape[0] for each in sums]).tolist()
    return [total_of(found[end - each.shape[0] : end]) for end, each in zip(ends, sums, strict=True)]


def total_of(hashes: Iterable[int]) -> int:
    """Returns one 64-bit number for many hashes; their order counts."""
    total = 0
    for one in hashes:
        total = (31 * total + one) % 2**64
    return total


def _sums(tensor: Tensor) -> Tensor:
    """Returns int32 sums, one a block."""
    bits, (odd, half) = words_of(tensor), _factors()
    if tensor.dtype not in (*_HALF, *_BYTES):  # else high bits that flip in several words often cancel in the sum
        bits = _ADD(bits, _SHIFT(bits, half))  # copies the sign: XOR would make a word equal its complement
    rest = bits.shape[0] % BLOCK
    whole = bits.shape[0] - rest
    sums = [sum_of(_MUL(_FLAT(bits[:whole], (-1, BLOCK)), odd))] if whole else []
    if rest:
        sums.append(sum_of(_FLAT(_MUL(bits[whole:], odd[:rest]), (1, rest))))
    return _CONCAT(sums)


def words_of(tensor: Tensor) -> Tensor:
    """Returns the bits of a tensor as int32 numbers in one row, two of each 64-bit number."""
    flat = _FLAT(tensor, (-1,))
    if flat.dtype in _BYTES:
        return _CAST(flat, ms.int32)
    if flat.dtype in _HALF:
        return _CAST(auto_generate.view_dtype(flat, ms.int16), ms.int32)
    return auto_generate.view_dtype(flat, ms.int32)


def sum_of(rows: Tensor, axis: int = 1) -> Tensor:
    """Returns sums of int32 numbers along an axis, modulo 2^32."""
    if ms.get_context("device_target") == "CPU":  # where a sum of int32 stops at the largest
        return _CAST(_SUM(_CAST(rows, ms.int64), (axis,)), ms.int32)
    return _SUM(rows, (axis,))


@functools.cache
def _factors() -> tuple[Tensor, Tensor]:
    return Tensor(odd_numbers().view(np.int32)), Tensor(16, ms.int32)
