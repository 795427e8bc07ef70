"""Where two tensors differ bit for bit, and whether one flipped bit explains it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from asd.dumps.formats.npy_file import TensorFile

__all__ = ["BitDifference", "Element", "note_differences"]

_LISTED = 5
"""Differing elements named one by one: the first ones."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element that differs.

    Attributes:
        index: Its place in the tensor, one number a dimension.
        tested: Value in the run under test.
        trusted: Value in the trusted run.
        tested_bits: Its bits in hex.
        trusted_bits: Its bits in hex.
        distance: Number of differing bits; None when the types differ.
        flipped: The differing bits, 0 being the lowest; None when the types differ.
    """

    index: tuple[int, ...]
    tested: float
    trusted: float
    tested_bits: str
    trusted_bits: str
    distance: int | None
    flipped: tuple[int, ...] | None

    @property
    def words(self) -> str:
        """The element in words."""
        bits = ""
        if self.flipped is not None:
            which = "bit" if len(self.flipped) == 1 else "bits"
            bits = (
                f", {which} {', '.join(map(str, self.flipped))} flipped"
                if len(self.flipped) <= 4
                else (f", {self.distance} bits differ")
            )
        return (
            f"index {list(self.index)}: {self.trusted:.9g} ({self.trusted_bits}) became "
            f"{self.tested:.9g} ({self.tested_bits}){bits}"
        )


@dataclass(frozen=True, slots=True)
class BitDifference:
    """The elements of a tensor that differ.

    Attributes:
        count: How many.
        size: Elements of the tensor.
        elements: The first `_LISTED` of them.
    """

    count: int
    size: int
    elements: tuple[Element, ...]

    @property
    def is_one_flip(self) -> bool:
        """Whether one flipped bit explains the whole difference."""
        return self.count == 1 and self.elements[0].distance == 1


def note_differences(
    found: BitDifference | None, ours: Any, theirs: Any, start: int, tested: TensorFile, trusted: TensorFile
) -> BitDifference | None:
    """Adds the differing elements of one piece; None as long as there is none.

    Args:
        found: What the pieces before gave.
        ours: Flat piece of the run under test.
        theirs: The same piece of the trusted run.
        start: Elements before this piece.
        tested: Where `ours` is from.
        trusted: Where `theirs` is from.
    """
    if ours.dtype == theirs.dtype and tested.is_bfloat16 == trusted.is_bfloat16:
        differs = _patterns(ours) != _patterns(theirs)
        if differs.ndim == 2:
            differs = differs.any(axis=1)
    else:
        differs = _numbers(ours, tested) != _numbers(theirs, trusted)
    count = int(np.count_nonzero(differs))
    if not count:
        return found
    found = found or BitDifference(0, tested.size, ())
    listed: tuple[Element, ...] = ()
    if len(found.elements) < _LISTED:
        places = np.flatnonzero(differs)[: _LISTED - len(found.elements)]
        listed = tuple(_element(int(place), ours, theirs, start, tested, trusted) for place in places)
    return replace(found, count=found.count + count, elements=found.elements + listed)


def _patterns(piece: Any) -> Any:
    """The elements as whole numbers of the same bits; a row of two for a type that is too wide for one."""
    piece = np.ascontiguousarray(piece)
    if piece.dtype.itemsize > 8:
        return piece.view(np.uint64).reshape(len(piece), -1)
    return piece.view(f"u{piece.dtype.itemsize}")


def _numbers(piece: Any, of: TensorFile) -> Any:
    return (piece.astype(np.uint32) << 16).view(np.float32) if of.is_bfloat16 else piece


def _element(place: int, ours: Any, theirs: Any, start: int, tested: TensorFile, trusted: TensorFile) -> Element:
    mine, other = ours[place : place + 1], theirs[place : place + 1]
    left, right = _whole(mine), _whole(other)
    same_type = mine.dtype == other.dtype and tested.is_bfloat16 == trusted.is_bfloat16
    flipped = tuple(bit for bit in range(8 * mine.dtype.itemsize) if (left ^ right) >> bit & 1) if same_type else None
    return Element(
        tuple(int(i) for i in np.unravel_index(start + place, tested.shape)),
        _number(mine, tested),
        _number(other, trusted),
        f"0x{left:0{2 * mine.dtype.itemsize}x}",
        f"0x{right:0{2 * other.dtype.itemsize}x}",
        None if flipped is None else len(flipped),
        flipped,
    )


def _whole(one: Any) -> int:
    little = one.astype(one.dtype.newbyteorder("<"))
    return int.from_bytes(little.tobytes(), "little")


def _number(one: Any, of: TensorFile) -> float:
    """Its value; the magnitude of a complex one."""
    value = _numbers(one, of)[0]
    return float(abs(value)) if one.dtype.kind == "c" else float(value)
