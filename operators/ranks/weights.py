"""Compares the weights of a replica group, bit by bit through hashes, and where these differ through sums."""

import functools
import struct
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor
from mindspore.ops import auto_generate
from mindspore.ops import operations as P  # noqa: N812

from asd.diagnosis.weights import Difference, compare_some, together
from asd.operators.private.layout import local
from asd.operators.ranks.exchange import Exchange

_CAST, _SUM, _FLAT, _MUL, _CONCAT = P.Cast(), P.ReduceSum(), P.Reshape(), P.Mul(), P.Concat()
_SHIFT, _ADD, _STACK = P.RightShift(), P.Add(), P.Stack(1)
BLOCK = 1 << 20  # words per sum
_PART = 1 << 24  # numbers that are copied at a time, as memory may have no room for the largest tensor once more
_ROUNDING = {ms.float16: 2.0**-8, ms.bfloat16: 2.0**-5}  # share of a weight, a few last places; of others 2^-10
_RARER = 4  # times as many steps to the next comparison where last bits differ, as it takes longer
_HALF, _BYTES = (ms.float16, ms.bfloat16, ms.int16, ms.uint16), (ms.bool_, ms.int8, ms.uint8)


class WeightComparison:
    """Comparison of weights in one training; all ranks make the same calls.

    Args:
        weights: The weights of the network.
        exchange: The ranks, and their replica groups.
        every: Steps between two comparisons; 0 for no comparison.

    Attributes:
        every: Steps between two comparisons; 0 once comparisons have ended.
        alike: Last step after which all replicas had the same weights, but for rounding; None before the first one.
    """

    def __init__(self, weights: Iterable[Parameter], exchange: Exchange, every: int) -> None:
        self.alike: int | None = None
        self._first, self._last, self._drifts = True, 0, False
        self._apart: dict[str, dict[str, list[float]]] = {}
        groups = exchange.groups
        self._exchange, self._holders = exchange, dict(groups.holders)
        self.every = every if self._holders else 0
        own = groups.labels[exchange.rank]
        self._sets: dict[str, list[Parameter]] = {label: [] for label in own if label in self._holders}
        for weight in weights:
            self._sets.get(groups.label_of(weight.name), []).append(weight)
        self._width = max(map(len, groups.labels))

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
            The difference, that of rounding once; it has no weights where a rank could not read its own. None when all
            are alike or no comparison is due.

        Raises:
            RankLostError: A rank did not answer.
        """
        last, self._last = min(self._last, step - 1), step
        # A call with sunk data makes many steps.
        if not self.active or not (self._first or step // self.every > last // self.every):
            return None
        self._first = False
        found = together(self._compare())
        if found is None or found.is_rounding:
            self.alike = step
            if found is None or self._drifts:
                return None
            self._drifts, self.every = True, _RARER * self.every
        elif self.alike is None and found.weights:
            # Nothing was damaged: the weights never were alike, and a later comparison could not show a fault.
            self.every = 0
        return found

    def _compare(self) -> list[Difference]:
        rank, groups, holders = self._exchange.rank, self._exchange.groups, self._holders.items()
        found, failure = attempt(hashes_of, [weight for weights in self._sets.values() for weight in weights])
        left = iter(found)
        # A rank that failed tells a total that no other has, so that all come to tell one another why.
        hashes = {label: [~rank] if failure else list(islice(left, len(some))) for label, some in self._sets.items()}
        totals = [total_of(hashes[label]) if label in hashes else 0 for label in groups.labels[rank]]
        message = struct.Struct(f"<{self._width}Q")
        parcel = message.pack(*totals, *[0] * (self._width - len(totals)))
        told = [message.unpack(each) for each in self._exchange.gather(parcel, message.size)]
        unlike = [label for label, ranks in holders if len({groups.total_of(told[i], i, label) for i in ranks}) > 1]
        if not unlike:
            return []
        mine: dict[str, dict[str, list[float]]] = {}
        for label in hashes.keys() & unlike:
            found, flaw = attempt(sketches_of, self._sets[label])
            rows, failure = zip(self._sets[label], hashes[label], found, strict=False), failure or flaw
            mine[label] = {weight.name: [number, *sketch] for weight, number, sketch in rows}
        words = self._exchange.tell(weights=mine, failure=failure and f"rank {rank}: {failure}")
        if failures := [word["failure"] for word in words if word["failure"]]:
            return [Difference((), (), failures[0])]
        differences = (
            compare_some(ranks, [word["weights"].get(label, {}) for word in words], self._apart.setdefault(label, {}))
            for label, ranks in holders
            if label in unlike
        )
        return [each for each in differences if each is not None]


def odd_numbers() -> np.ndarray:
    """Returns the factors of a block's words, uint32 of shape (BLOCK,): odd and scattered, so that order counts."""
    mixed = np.arange(1, BLOCK + 1, dtype=np.uint32) * np.uint32(0x9E3779B1)
    mixed = np.bitwise_xor(mixed, mixed >> np.uint32(15)) * np.uint32(0x85EBCA77)
    odd: np.ndarray = np.bitwise_xor(mixed, mixed >> np.uint32(13)) | np.uint32(1)
    return odd


def attempt(read: Callable[[Any], list[Any]], tensors: Iterable[Tensor]) -> tuple[list[Any], str]:
    """Returns what `read` returns, and why it failed: the other ranks, which wait for this one, must hear of it."""
    try:
        return read(tensors), ""
    except Exception as error:
        return [], f"weights cannot be read: {error!r:.200}"


def hashes_of(tensors: Iterable[Tensor]) -> list[int]:
    """Returns a hash of the bits of each tensor, of any shape and type, of a sharded one of this rank's shard."""
    found = _read([_sums(local(each), _factors()[0], sum_of) for each in tensors])
    return [total_of(each.view(np.uint32).tolist()) for each in found]


def sketches_of(tensors: Iterable[Tensor]) -> list[list[float]]:
    """Returns of each tensor sums of its numbers times scattered factors, then how far rounding may move each."""
    shards, factors = [local(each) for each in tensors], _MUL(_CAST(_factors()[0], ms.float32), 2.0**-31)
    add = lambda rows: _FLAT(_STACK([_SUM(rows, (1,)), _SUM(_MUL(rows, rows), (1,))]), (-1,))  # noqa: E731
    found = _read([_sums(each, factors, add) for each in shards])
    shares = [_ROUNDING.get(each.dtype, 2.0**-10) for each in shards]
    return [[*a[::2].tolist(), *(most * a[1::2] ** 0.5).tolist()] for a, most in zip(found, shares, strict=True)]


def _read(found: list[Tensor]) -> list[np.ndarray]:
    return np.split(_CONCAT(found).asnumpy(), np.cumsum([each.shape[0] for each in found])[:-1]) if found else []


def total_of(hashes: Iterable[int]) -> int:
    """Returns one 64-bit number for many hashes; their order counts."""
    total = 0
    for one in hashes:
        total = (31 * total + one) % 2**64
    return total


def _sums(tensor: Tensor, factors: Tensor, add: Callable[..., Tensor]) -> Tensor:
    """Returns sums of words or, with float32 factors, of numbers times these, one a block; 0 of an empty tensor."""
    flat, sums = _FLAT(tensor, (-1,)), []
    size = flat.shape[0]
    for begin in range(0, size, _PART):
        row = flat[begin : begin + _PART] if size > _PART else flat
        row = words_of(row) if factors.dtype == ms.int32 else _CAST(row, ms.float32)
        if row.dtype == ms.int32 and tensor.dtype not in (*_HALF, *_BYTES):
            # Else high bits that flip in several words often cancel in the sum; XOR would make a word equal its
            # complement, where a shift copies the sign.
            row = _ADD(row, _SHIFT(row, _factors()[1]))
        rest = row.shape[0] % BLOCK
        whole = row.shape[0] - rest
        sums += [add(_MUL(_FLAT(row[:whole], (-1, BLOCK)), factors))] if whole else []
        if rest:
            sums.append(add(_FLAT(_MUL(row[whole:], factors[:rest]), (1, rest))))
    return _CONCAT(sums) if sums else factors[:1] * 0


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
