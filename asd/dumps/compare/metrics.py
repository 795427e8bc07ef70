"""Differences between two tensors, in numbers and in bits. Both are read in pieces; equal bytes are only compared.

    relative error = |N - B| / |B|; where B is 0 the machine epsilon of float64 is added to both
    cosine         = N·B / (|N| |B|); 1 when both norms are at most epsilon, not defined when one is

N is the run under test, B the trusted one. Sums are of float64 or wider, so no square of an element overflows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

import numpy as np

from asd.dumps.formats.npy_file import TensorFile
from asd.dumps.formats.statistics import without_bad

UNSUPPORTED, NOT_A_NUMBER, SHAPE_UNMATCHED = "unsupported", "N/A", "shape unmatched"
"""Words in place of a number: it cannot be computed; Inf or NaN are at different places; the shapes differ."""

PIECE = 1 << 15  # elements that are compared at a time: as many as fit into a cache
_BLOCK = 1 << 20
_EPSILON = float(np.finfo(np.float64).eps)

Number = float | str
_NAMED = 4  # flipped bits that are named one by one


@dataclass(frozen=True, slots=True)
class BitDifference:
    """The elements of a tensor that differ, and the first of them."""

    count: int  # how many differ
    size: int  # elements of the tensor
    index: tuple[int, ...]  # place of the first one, one number a dimension
    tested: float  # its value in the run under test
    trusted: float  # its value in the trusted run
    bits: tuple[str, str]  # its bits in both runs, in hex
    flipped: tuple[int, ...] | None  # its differing bits, 0 being the lowest; None when the types differ

    @property
    def is_one_flip(self) -> bool:
        """True where one flipped bit explains the whole difference."""
        return self.count == 1 and self.flipped is not None and len(self.flipped) == 1

    @property
    def words(self) -> str:
        """The difference in words."""
        bits = ""
        if self.flipped is not None and len(self.flipped) <= _NAMED:
            bits = f", bit{'s' * (len(self.flipped) > 1)} {', '.join(map(str, self.flipped))} flipped"
        elif self.flipped is not None:
            bits = f", {len(self.flipped)} bits differ"
        return (
            f"{self.count} of {self.size} element{'s' * (self.size != 1)}, first at index {list(self.index)}: "
            f"{self.trusted:.9g} ({self.bits[1]}) became {self.tested:.9g} ({self.bits[0]}){bits}"
            f"{', as one flipped bit leaves it' if self.is_one_flip else ''}"
        )


@dataclass(frozen=True, slots=True)
class Metrics:
    """Result of comparing two tensors; one of the three words above replaces a number that does not exist."""

    cosine: Number  # cosine similarity; `unsupported` for fewer than two elements, `Nan` when one norm alone is 0
    euclidean: Number  # L2 norm of the difference
    max_abs: Number  # largest absolute difference
    max_relative: Number  # largest relative error
    thousandth: Number  # share of the elements with a relative error below 0.001
    five_thousandths: Number  # the same below 0.005
    message: str = ""  # reason why there is no number; empty otherwise
    same_bits: bool | None = None  # whether every element is equal bit for bit; None when that is not known
    # places where the bits differ; None when they do not, or when it is not known
    difference: BitDifference | None = None
    # factor by which the trusted tensor comes nearest to the tested one; None if no factor does
    factor: float | None = None
    beside: float = 0.0  # distance of that multiple from the tested tensor, relative to the trusted one
    scale: tuple[float, float] = (0.0, 0.0)  # root mean square, largest magnitude of the trusted finite elements

    @classmethod
    def without_numbers(
        cls, word: str, message: str, *, same_bits: bool | None = None, difference: BitDifference | None = None
    ) -> Metrics:
        """Returns the metrics of tensors that can't be measured."""
        return cls(word, word, word, word, word, word, message, same_bits, difference)


def compare_files(tested: TensorFile, trusted: TensorFile) -> Metrics:
    """Compares two tensors of one shape."""
    if not tested.size:
        return Metrics.without_numbers(UNSUPPORTED, "the tensors are empty", same_bits=True)
    if (tested.dtype.kind == "c") != (trusted.dtype.kind == "c"):
        return Metrics.without_numbers(UNSUPPORTED, "one side is complex, the other real", same_bits=False)
    if _equal_bytes(tested, trusted):
        return Metrics(1.0 if tested.size > 1 else UNSUPPORTED, 0.0, 0.0, 0.0, 1.0, 1.0, same_bits=True)
    sums = _Sums()
    with np.errstate(all="ignore"):
        for ours, theirs in _pairs(tested, trusted):
            sums.add(ours, theirs, tested, trusted)
    return sums.metrics(tested.size)


def _equal_bytes(tested: TensorFile, trusted: TensorFile) -> bool:
    if (tested.dtype, tested.fortran, tested.is_bfloat16) != (trusted.dtype, trusted.fortran, trusted.is_bfloat16):
        return False
    ours, theirs = bytearray(min(_BLOCK, tested.nbytes)), bytearray(min(_BLOCK, tested.nbytes))
    for start in range(0, tested.nbytes, _BLOCK):
        if tested.nbytes - start < len(ours):
            del ours[tested.nbytes - start :], theirs[tested.nbytes - start :]
        with memoryview(ours) as left, memoryview(theirs) as right:
            tested.read(start, left)
            trusted.read(start, right)
        if ours != theirs:
            return False
    return True


def _pairs(tested: TensorFile, trusted: TensorFile) -> Iterator[tuple[Any, Any]]:
    return zip_longest(tested.pieces(PIECE), trusted.pieces(PIECE))


class _Sums:
    """Sums that are kept from piece to piece."""

    def __init__(self) -> None:
        self._dot = self._ours = self._theirs = self._squares = 0.0
        self._max_abs = self._max_relative = self._largest = 0.0
        self._thousandth = self._five = self._seen = self._parts = 0
        self._clash = False
        self._difference: BitDifference | None = None

    def add(self, ours: Any, theirs: Any, tested: TensorFile, trusted: TensorFile) -> None:
        """Takes in one piece of both."""
        self._difference = _note_differences(self._difference, ours, theirs, self._seen, tested, trusted)
        self._seen += len(ours)
        n, b = _wide(ours, tested), _wide(theirs, trusted)
        sums = (_dot(n, b), _dot(n, n), _dot(b, b))
        if not np.isfinite(sums).all():
            n, b, clashes = without_bad(n, b)
            self._clash |= clashes > 0
            sums = (_dot(n, b), _dot(n, n), _dot(b, b))
        self._dot, self._ours, self._theirs = self._dot + sums[0], self._ours + sums[1], self._theirs + sums[2]
        distance = np.subtract(n, b, out=n)
        self._squares += _dot(distance, distance)
        np.abs(distance, out=distance)
        self._max_abs = max(self._max_abs, float(distance.max()))
        np.abs(b, out=b)
        self._largest = max(self._largest, float(b.max()))
        b[b == 0] = _EPSILON
        relative = np.divide(distance, b, out=distance)
        self._max_relative = max(self._max_relative, float(relative.max()))
        self._thousandth += int(np.count_nonzero(relative < 0.001))
        self._five += int(np.count_nonzero(relative < 0.005))
        self._parts += len(relative)  # a complex number has two

    def metrics(self, size: int) -> Metrics:
        """Returns the metrics of all pieces together."""
        same_bits = self._difference is None
        if self._clash:
            message = "Inf or NaN stand at different places"
            return Metrics.without_numbers(NOT_A_NUMBER, message, same_bits=same_bits, difference=self._difference)
        factor = self._dot / self._theirs if self._theirs else None
        beside = self._ours / self._theirs - factor * factor if factor is not None else 0.0
        return Metrics(
            self._cosine() if size > 1 else UNSUPPORTED,
            float(np.sqrt(self._squares)),
            self._max_abs,
            self._max_relative,
            self._thousandth / self._parts,
            self._five / self._parts,
            same_bits=same_bits,
            difference=self._difference,
            factor=None if factor is None else float(factor),
            beside=math.sqrt(max(0.0, beside)),
            scale=(float(np.sqrt(self._theirs / size)), self._largest),
        )

    def _cosine(self) -> Number:
        ours, theirs = np.sqrt(self._ours), np.sqrt(self._theirs)
        if ours <= _EPSILON and theirs <= _EPSILON:
            return 1.0
        if ours <= _EPSILON or theirs <= _EPSILON:
            return "Nan"
        cosine = float(self._dot / ours / theirs)
        return math.copysign(min(1.0, abs(cosine)), cosine)


def _dot(n: Any, b: Any) -> Any:
    # Not `@`: its threads would wait for those that read other tensors.
    return np.einsum("i,i->", n, b)


def _wide(piece: Any, of: TensorFile) -> Any:
    """Returns the elements as numbers whose squares neither overflow nor lose digits of integers."""
    if of.is_bfloat16:
        return (piece.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if piece.dtype.kind == "c":
        piece = piece.view(piece.real.dtype)
    return piece.astype(np.longdouble if piece.dtype.itemsize >= 8 else np.float64)


def _note_differences(
    found: BitDifference | None, ours: Any, theirs: Any, start: int, tested: TensorFile, trusted: TensorFile
) -> BitDifference | None:
    """Adds the differing elements of a flat piece after `start` elements; None as long as there is none."""
    same_type = ours.dtype == theirs.dtype and tested.is_bfloat16 == trusted.is_bfloat16
    if same_type:
        differs = _patterns(ours) != _patterns(theirs)
        differs = differs.any(axis=1) if differs.shape[1] > 1 else differs[:, 0]
    else:
        differs = _numbers(ours, tested) != _numbers(theirs, trusted)
    count = int(np.count_nonzero(differs))
    if found is not None or not count:
        return found and replace(found, count=found.count + count)
    place = int(differs.argmax())
    mine, other = ours[place : place + 1], theirs[place : place + 1]
    left, right = (_whole(each) for each in (mine, other))
    return BitDifference(
        count,
        tested.size,
        tuple(int(i) for i in np.unravel_index(start + place, tested.shape)),
        _number(mine, tested),
        _number(other, trusted),
        (f"0x{left:0{2 * mine.dtype.itemsize}x}", f"0x{right:0{2 * other.dtype.itemsize}x}"),
        tuple(bit for bit in range(8 * mine.dtype.itemsize) if (left ^ right) >> bit & 1) if same_type else None,
    )


def _patterns(piece: Any) -> Any:
    """Returns the bits of each element as a row of one whole number, or of two for wider types."""
    piece = np.ascontiguousarray(piece)
    return piece.view(f"u{min(8, piece.dtype.itemsize)}").reshape(len(piece), -1)


def _whole(one: Any) -> int:
    return int.from_bytes(one.astype(one.dtype.newbyteorder("<")).tobytes(), "little")


def _numbers(piece: Any, of: TensorFile) -> Any:
    return (piece.astype(np.uint32) << 16).view(np.float32) if of.is_bfloat16 else piece


def _number(one: Any, of: TensorFile) -> float:
    """Its value; the magnitude of a complex one."""
    value = _numbers(one, of)[0]
    return float(abs(value)) if one.dtype.kind == "c" else float(value)
