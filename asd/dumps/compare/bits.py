"""Where two tensors differ bit for bit, and whether one flipped bit explains it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from asd.dumps.formats.npy_file import TensorFile

__all__ = ["BitDifference", "note_differences"]

_NAMED = 4
"""Flipped bits that are named one by one."""


@dataclass(frozen=True, slots=True)
class BitDifference:
    """The elements of a tensor that differ, and the first of them.

    Attributes:
        count: How many differ.
        size: Elements of the tensor.
        index: Place of the first one, one number a dimension.
        tested: Its value in the run under test.
        trusted: Its value in the trusted run.
        bits: Its bits in both runs, in hex.
        flipped: Its differing bits, 0 being the lowest; None when the types differ.
    """

    count: int
    size: int
    index: tuple[int, ...]
    tested: float
    trusted: float
    bits: tuple[str, str]
    flipped: tuple[int, ...] | None

    @property
    def is_one_flip(self) -> bool:
        """Whether one flipped bit explains the whole difference."""
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
    """The bits of each element as a row of whole numbers: of one, or of two for a type that is too wide for one."""
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
