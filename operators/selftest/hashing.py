"""Hashes of weights and gradients: known answers, one for the same bits, another for any other."""

from __future__ import annotations

import numpy as np

from asd.operators.kernel import library as kernel
from asd.operators.kernel.blocks import hashes_of_blocks
from asd.operators.ranks.weights import hash_of, hash_without_kernel, hashes_of, total_of
from asd.operators.selftest.outcome import Absent, Report, expect
from asd.operators.selftest.values import DTYPES, cases, read, tensor
from asd.rules.history.seal import BLOCK

__all__ = ["test_hashes"]

_KNOWN = {0: 0x8E1238F24604F327, 7: 0x3ACCB42414164BE6, 64: 0xD5DC87210DA8B433, 1000: 0x896E3225BF2F7908}
"""Of the first so many bytes of 0, 1, 2, ... by the C++ kernel: the same on every machine."""


def test_hashes(report: Report, backends: tuple[str, ...]) -> None:
    """Those of the kernel, where it was built, and those by NumPy, which any machine can make."""
    if kernel.library is not None:
        report.check("hashes", "known answers", _known, backend="kernel")
        report.check("hashes", "a flipped bit", _flipped, True, backend="kernel")
        report.check("hashes", "of blocks", _blocks, backend="kernel")
    report.check("hashes", "known answers", _by_numpy, backend="operators")
    report.check("hashes", "a flipped bit", _flipped, False, backend="operators")
    for dtype in DTYPES:
        report.check("hashes", "of a weight on the device", _of_weight, dtype, dtype=dtype)


def _bytes(count: int) -> np.ndarray:
    return (np.arange(count) % 251).astype(np.uint8)


def _known() -> None:
    for count, known in _KNOWN.items():
        found = hash_of(_bytes(count), use_kernel=True)
        expect(found == known, f"the hash of {count} known bytes is {found:#x}, on every machine it is {known:#x}")


def _by_numpy() -> None:
    words = [int.from_bytes(bytes(_bytes(1000)[i : i + 4]), "little") for i in range(0, 1000, 4)]
    truth = sum(word * (2 * i + 1) for i, word in enumerate(words)) % 2**64
    found = hash_without_kernel(_bytes(1000))
    expect(found == truth, f"the hash of 1000 known bytes is {found:#x}, by whole numbers it is {truth:#x}")
    found = total_of([1, 2, 2**64 - 1])
    truth = (31 * 31 * 1 + 31 * 2 + 2**64 - 1) % 2**64
    expect(found == truth, f"the total of three hashes is {found:#x}, by whole numbers it is {truth:#x}")


def _flipped(use_kernel: bool) -> None:  # noqa: FBT001
    data = np.random.default_rng(1).integers(0, 256, 1003).astype(np.uint8)
    right = hash_of(data, use_kernel=use_kernel)
    expect(hash_of(data.copy(), use_kernel=use_kernel) == right, "a copy has another hash")
    for bit in (*range(64), *range(64, 8 * data.size, 61)):
        other = data.copy()
        other[bit // 8] ^= 1 << bit % 8
        expect(hash_of(other, use_kernel=use_kernel) != right, f"bit {bit} of {8 * data.size} flips unseen")


def _blocks() -> None:
    data = np.random.default_rng(2).normal(size=3 * BLOCK // 4 + 5).astype(np.float32)
    right = hashes_of_blocks(data)
    expect(len(right) == -(-data.nbytes // BLOCK), f"{data.nbytes} bytes have {len(right)} blocks of {BLOCK}")
    other = data.copy()
    other.view(np.uint32)[-1] ^= 1
    changed = [i for i, (a, b) in enumerate(zip(right, hashes_of_blocks(other), strict=True)) if a != b]
    expect(changed == [len(right) - 1], f"a bit of the last block flips, and the hashes of blocks {changed} change")


def _of_weight(dtype: str) -> None:
    for name, array in cases(dtype).items():
        weight = tensor(array, dtype)
        if read(weight).tobytes() != array.tobytes():
            if name in ("denormal", "tiny"):
                continue  # made by a conversion on the device, which takes it for zero
            raise Absent(f"the device does not keep the bits of {name} in {dtype}")
        for use_kernel in (True, False):
            (found,) = hashes_of([weight], use_kernel=use_kernel)
            truth = hash_of(array, use_kernel=use_kernel)
            expect(found == truth, f"{name}: the hash of a weight is {found:#x}, of the same bits in NumPy {truth:#x}")
