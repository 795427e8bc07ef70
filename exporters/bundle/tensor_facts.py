"""What can be said about a tensor that broke its limit: its statistics, and the bits of its worst elements."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from asd.rules.readings.reading import Capture

__all__ = ["LISTED", "count", "describe", "save"]

LISTED = 20
"""Elements that are named one by one: of the largest, and of those that are not finite."""
_CHUNK = 1 << 20  # elements widened to float64 at a time
_SAMPLE = 1 << 22  # elements that quantiles are taken of at most
_QUANTILES = (0.0, 0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0)
_BFLOAT16 = "bfloat16"
_BFLOAT16_NOTE = "NumPy has no bfloat16: tensor.npy holds the bit patterns as uint16; (x.astype('u4') << 16).view('f4')"
_HINT = (
    "nearest_flip is a hint only: the single bit whose flip would bring the magnitude nearest to the median magnitude. "
    "It proves nothing; most broken tensors were not broken by one flipped bit."
)


def count(capture: Capture) -> int:
    """Number of kept elements."""
    return len(capture.data) // _stored_type(capture).itemsize


def save(file: IO[bytes], capture: Capture) -> None:
    """Writes the kept elements as a `.npy` file: in their shape when all are there, flat otherwise.

    Raises:
        OSError: The disk is full.
    """
    array = _stored(capture)
    np.save(file, array.reshape(capture.shape) if array.size == math.prod(capture.shape) else array)


def describe(capture: Capture) -> dict[str, Any]:
    """The facts as they go to JSON.

    The numbers are those of the kept elements; indices count in the whole tensor. `inf` and `nan` among the numbers are
    floats still.
    """
    elements = math.prod(capture.shape)
    kept = count(capture)
    facts: dict[str, Any] = {
        "checkpoint": capture.checkpoint, "call": capture.call, "dtype": capture.dtype, "shape": list(capture.shape),
        "elements": elements, "offset": capture.offset, "kept": kept, "whole": kept == elements,
    }  # fmt: skip
    if capture.dtype == _BFLOAT16:
        facts["note"] = _BFLOAT16_NOTE
    stored = _stored(capture)
    with np.errstate(all="ignore"):
        facts.update(_statistics(stored, capture.dtype))
        largest, bad = _worst(stored, capture.dtype)
        median = facts["median_magnitude"]
        facts["largest"] = [_element(capture, stored, index, median) for index in largest]
        facts["not_finite"] = [_element(capture, stored, index, median) for index in bad]
    facts["hint"] = _HINT
    return facts


def _stored_type(capture: Capture) -> np.dtype[Any]:
    return np.dtype(np.uint16 if capture.dtype == _BFLOAT16 else capture.dtype)


def _stored(capture: Capture) -> np.ndarray[Any, Any]:
    return np.frombuffer(capture.data, _stored_type(capture))


def _wide(stored: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    if dtype == _BFLOAT16:
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.astype(np.float64)


def _chunks(stored: np.ndarray[Any, Any], dtype: str) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    for start in range(0, stored.size, _CHUNK):
        yield start, _wide(stored[start : start + _CHUNK], dtype)


def _statistics(stored: np.ndarray[Any, Any], dtype: str) -> dict[str, Any]:
    nan = infinite = zeros = finite = 0
    total = squares = all_squares = 0.0
    low, high = math.inf, -math.inf
    for _, values in _chunks(stored, dtype):
        good = values[np.isfinite(values)]
        nan += int(np.isnan(values).sum())
        infinite += int(np.isinf(values).sum())
        zeros += int((values == 0).sum())
        finite += good.size
        total += float(good.sum())
        all_squares += float(np.square(values).sum())
        low, high = min(low, good.min(initial=math.inf)), max(high, good.max(initial=-math.inf))
    mean = total / finite if finite else math.nan
    for _, values in _chunks(stored, dtype):
        squares += float(np.square(values[np.isfinite(values)] - mean).sum())
    every = -(-stored.size // _SAMPLE)
    sample = _wide(stored[::every], dtype)
    sample = sample[np.isfinite(sample)]
    magnitudes = np.abs(sample[sample != 0])
    return {
        "finite": finite,
        "nan": nan,
        "inf": infinite,
        "zeros": zeros,
        "l2": math.sqrt(all_squares),
        "min": float(low) if finite else None,
        "max": float(high) if finite else None,
        "mean": mean if finite else None,
        "std": math.sqrt(squares / finite) if finite else None,
        "quantiles": _quantiles(sample),
        "quantiles_of": "all finite elements" if every == 1 else f"the finite ones of one element in {every}",
        "median_magnitude": float(np.median(magnitudes)) if magnitudes.size else None,
    }


def _quantiles(sample: np.ndarray[Any, Any]) -> dict[str, float]:
    if not sample.size:
        return {}
    found = np.quantile(sample, _QUANTILES)
    return {str(q): float(value) for q, value in zip(_QUANTILES, found, strict=True)}


def _worst(stored: np.ndarray[Any, Any], dtype: str) -> tuple[list[int], list[int]]:
    """Indices of the largest finite elements, the largest first, and of the first ones that are not finite."""
    best: list[tuple[float, int]] = []
    bad: list[int] = []
    for start, values in _chunks(stored, dtype):
        finite = np.isfinite(values)
        bad += [start + int(i) for i in np.flatnonzero(~finite)[: LISTED - len(bad)]]
        magnitudes = np.where(finite, np.abs(values), -1.0)
        least = np.partition(magnitudes, -LISTED)[-LISTED] if magnitudes.size > LISTED else -1.0
        larger = np.flatnonzero(magnitudes > least)
        equal = np.flatnonzero((magnitudes == least) & finite)[: LISTED - larger.size]
        best += [(-float(magnitudes[i]), start + int(i)) for i in (*larger, *equal)]
        best = sorted(best)[:LISTED]
    return [index for _, index in best], bad


def _element(capture: Capture, stored: np.ndarray[Any, Any], index: int, median: float | None) -> dict[str, Any]:
    width = stored.itemsize
    bits = int(stored[index : index + 1].view(f"u{width}")[0])
    value = float(_wide(stored[index : index + 1], capture.dtype)[0])
    place = capture.offset + index
    return {
        "index": place,
        "at": [int(i) for i in np.unravel_index(place, capture.shape)],
        "value": value,
        "bits": f"0x{bits:0{2 * width}x}",
        "times_median": abs(value) / median if median else None,
        "nearest_flip": _nearest_flip(bits, width, capture.dtype, value, median),
    }


def _nearest_flip(bits: int, width: int, dtype: str, value: float, median: float | None) -> dict[str, Any] | None:
    """The bit whose flip brings the magnitude nearest to `median`, 0 being the lowest; None if none does."""
    if not median:
        return None
    no_sign = range(8 * width - 1)
    flipped = np.array([bits ^ 1 << bit for bit in no_sign], f"u{width}")
    values = _wide(flipped.view(np.uint16 if dtype == _BFLOAT16 else dtype), dtype)
    distances = np.abs(np.log2(np.abs([value, *values]) / median))
    distances[~np.isfinite(distances)] = np.inf
    nearest = int(np.argmin(distances))
    return {"bit": nearest - 1, "becomes": float(values[nearest - 1])} if nearest else None
