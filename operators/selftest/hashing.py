"""Hashes of weights and gradients: known answers, one for the same bits, another for any other."""

from __future__ import annotations

import numpy as np

from asd.operators.ranks.weights import hash_of, hashes_of, total_of
from asd.operators.selftest.outcome import Absent, Report, expect
from asd.operators.selftest.values import DTYPES, cases, read, tensor

__all__ = ["test_hashes"]


def test_hashes(report: Report) -> None:
    """Known answers, flipped bits, and weights of each type."""
    report.check("hashes", "known answers", _known)
    report.check("hashes", "a flipped bit", _flipped)
    for dtype in DTYPES:
        report.check("hashes", "of a weight on the device", _of_weight, dtype, dtype=dtype)


def _bytes(count: int) -> np.ndarray:
    return (np.arange(count) % 251).astype(np.uint8)


def _known() -> None:
    words = [int.from_bytes(bytes(_bytes(1000)[i : i + 4]), "little") for i in range(0, 1000, 4)]
    truth = sum(word * (2 * i + 1) for i, word in enumerate(words)) % 2**64
    found = hash_of(_bytes(1000))
    expect(found == truth, f"the hash of 1000 known bytes is {found:#x}, by whole numbers it is {truth:#x}")
    found = total_of([1, 2, 2**64 - 1])
    truth = (31 * 31 * 1 + 31 * 2 + 2**64 - 1) % 2**64
    expect(found == truth, f"the total of three hashes is {found:#x}, by whole numbers it is {truth:#x}")


def _flipped() -> None:
    data = np.random.default_rng(1).integers(0, 256, 1003).astype(np.uint8)
    right = hash_of(data)
    expect(hash_of(data.copy()) == right, "a copy has another hash")
    for bit in (*range(64), *range(64, 8 * data.size, 61)):
        other = data.copy()
        other[bit // 8] ^= 1 << bit % 8
        expect(hash_of(other) != right, f"bit {bit} of {8 * data.size} flips unseen")


def _of_weight(dtype: str) -> None:
    for name, array in cases(dtype).items():
        weight = tensor(array, dtype)
        if read(weight).tobytes() != array.tobytes():
            if name in ("denormal", "tiny"):
                continue  # made by a conversion on the device, which takes it for zero
            raise Absent(f"the device does not keep the bits of {name} in {dtype}")
        (found,) = hashes_of([weight])
        truth = hash_of(array)
        expect(found == truth, f"{name}: the hash of a weight is {found:#x}, of the same bits in NumPy {truth:#x}")
