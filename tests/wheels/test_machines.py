"""The kernels of both wheels do what NumPy does; that of aarch64 runs under qemu."""

import os
import shutil
import zlib

import numpy as np
import pytest
from machine import RUNNERS, Remote
from wheel_files import FOLDER, kernel_of, the_wheel

from asd.operators.kernel.library import _STRUCTURES, GATE_DTYPE, SLOT_DTYPE

pytestmark = pytest.mark.skipif(FOLDER is None, reason="`make wheels` says in WHEELS_FOLDER where they are")
TYPES = ("float16", "float32", "float64")
HASH_OF_A_THOUSAND = 0xF4F0ABFD4E083961
MACHINES = [
    pytest.param(machine, marks=pytest.mark.skipif(
        shutil.which(run[0] if run else "env") is None or not (run or os.uname().machine == machine),
        reason=f"nothing here runs instructions of {machine}"))
    for machine, run in RUNNERS.items()
]  # fmt: skip


@pytest.fixture(scope="module", params=MACHINES)
def kernel(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    remote = Remote(kernel_of(the_wheel(request.param), folder), request.param, folder)
    yield remote
    assert remote.close() == 0


def draw(*shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def test_its_structures_are_those_of_python(kernel):
    sizes = kernel.read(kernel.call("asd_layout"), np.int64, len(_STRUCTURES) + 1).tolist()
    assert sizes == [*_STRUCTURES.values(), 0]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [1, 15, 16, 17, 4096, 100_003])
def test_statistics_are_those_of_numpy(kernel, dtype, size):
    x = draw(size, dtype=dtype, seed=size)
    if size > 1:
        x[size // 2], x[-1] = np.nan, -np.inf
    out, wide = np.zeros(4), np.abs(x.astype(np.float64))
    assert kernel.call("asd_statistics", x, size, dtype.encode() + b"\0", out) == 0
    finite = np.isfinite(wide)
    assert (out[0], out[2]) == (wide[finite].max(), np.sum(~finite))
    np.testing.assert_allclose((out[1], out[3]), (np.sum(wide * wide), np.sum(wide)), rtol=1e-6)


def test_bfloat16_is_widened_bit_for_bit(kernel):
    bits, out = np.arange(2**16, dtype=np.uint16), np.zeros(2**16, np.float32)
    assert kernel.call("asd_widen", bits, bits.size, b"bfloat16\0", out) == 0
    expected = (bits.astype(np.uint32) << 16).view(np.float32)
    same = (out.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(out) & np.isnan(expected))
    assert same.all()


def test_half_precision_is_widened_as_numpy_does_it(kernel):
    bits, out = np.arange(2**16, dtype=np.uint16), np.zeros(2**16, np.float32)
    assert kernel.call("asd_widen", bits, bits.size, b"float16\0", out) == 0
    np.testing.assert_array_equal(out, bits.view(np.float16).astype(np.float32))


def test_every_flipped_bit_gives_another_hash_and_the_same_one_on_every_machine(kernel):
    x = np.arange(1000, dtype=np.float32)
    whole = kernel.call("asd_hash", x, x.nbytes)
    seen = {whole}
    for bit in range(0, 32 * x.size, 997):
        other = x.copy()
        other.view(np.uint32)[bit // 32] ^= np.uint32(1 << bit % 32)
        seen.add(kernel.call("asd_hash", other, other.nbytes))
    assert len(seen) == 1 + len(range(0, 32 * x.size, 997))
    assert whole & (2**64 - 1) == HASH_OF_A_THOUSAND


@pytest.mark.parametrize("threads", [1, 4])
def test_blocks_are_hashed_and_measured_by_any_number_of_threads(kernel, threads):
    blocks = [draw(257, seed=seed) for seed in range(9)]
    hashes, extremes = np.zeros(9, np.uint64), np.zeros((9, 2))
    address = [kernel.call("malloc", block.nbytes) for block in blocks]
    for at, block in zip(address, blocks, strict=True):
        kernel.write(at, block)
    table = np.array([(at, block.nbytes, 2, 1) for at, block in zip(address, blocks, strict=True)], np.int64)
    kernel.call("asd_read_blocks", table, 9, threads, hashes, extremes)
    assert hashes.tolist() == [kernel.call("asd_hash", block, block.nbytes) & (2**64 - 1) for block in blocks]
    np.testing.assert_array_equal(extremes, [(np.abs(block).max(), block.min()) for block in blocks])
    assert extremes.dtype == np.float64
    for at in address:
        kernel.call("free", at)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_product_is_right_and_a_wrong_element_is_found(kernel, dtype):
    a, b = draw(33, 300, dtype=dtype, seed=1), draw(300, 270, dtype=dtype, seed=2)
    product = (a.astype(np.float64) @ b.astype(np.float64)).astype(dtype)

    def check(product):
        out, name = np.zeros(8), dtype.encode() + b"\0"
        faces = [(x, 2, np.array(x.shape, np.int64), name) for x in (a, b, product)]
        assert kernel.call("asd_checksum_arrays", *faces[0], 0, *faces[1], 0, *faces[2], name, 0, out) == 0
        return out

    healthy = check(product)
    assert healthy[0] <= 1
    assert healthy[7] == 1
    product[20, 261] += 4
    assert check(product)[0] > 1
    assert check(product)[1:3].tolist() == [20, 261]


def test_a_norm_is_right_and_a_wrong_row_is_found(kernel):
    x, gamma, beta = draw(12, 64, seed=3), draw(64, seed=4), draw(64, seed=5)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    y = (centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * gamma + beta).astype(np.float32)
    kernel.write(kernel.call("asd_checksum_schedule", 0), np.array([0, 0, 1, 0], np.int64))
    place = np.array([7, 1, 1, 1], np.int32)

    def score(y):
        slots = kernel.call("asd_slots")
        kernel.write(slots + 7 * SLOT_DTYPE.itemsize, np.zeros(1, SLOT_DTYPE))
        kernel.custom("asd_norm_forward", [x, gamma, beta, y, place, np.array([1e-5], np.float32)])
        return float(kernel.read(slots, SLOT_DTYPE, 8)[7]["max_abs"])

    assert 0 < score(y) <= 1
    y[5, 9] *= 1.01
    assert score(y) > 1


def test_the_gate_refuses_what_breaks_its_limit_and_counts_it(kernel):
    slots, gates = kernel.call("asd_slots"), kernel.call("asd_gates")
    one = np.zeros(1, SLOT_DTYPE)
    for name in SLOT_DTYPE.names:
        one[name] = np.inf if name.startswith("limit") else 0
    one["limit_max"], one["judged"] = 5.0, 1
    kernel.write(slots + 3 * SLOT_DTYPE.itemsize, one)
    kernel.write(kernel.call("asd_header"), np.array([8], np.int64))
    kernel.write(gates, np.array([1], np.int64))
    number = np.zeros(1, np.int32)

    def step(gradient):
        kernel.custom("asd_observe", [gradient, np.array([3], np.int32)])
        refuses = kernel.custom("asd_gate", [gradient, number])
        agreed = kernel.custom("asd_agree", [refuses, number])
        kernel.write(slots + 3 * SLOT_DTYPE.itemsize, one)
        kernel.call("asd_have_read", 0)
        return refuses[0], agreed[0]

    before = int(kernel.read(gates, GATE_DTYPE, 1)["refused"][0])
    assert step(np.full(100, 4.9, np.float32)) == (0, 0)
    assert step(np.full(100, 5.1, np.float32)) == (1, 1)
    assert step(np.full(100, np.nan, np.float16)) == (1, 1)
    assert step(np.full(100, 4.9, np.float64)) == (0, 0)
    assert int(kernel.read(gates, GATE_DTYPE, 1)["refused"][0]) == before + 2


def test_its_crc_is_that_of_zlib_or_is_left_to_zlib(kernel):
    x, crc = draw(12_345), np.zeros(1, np.uint32)
    left = kernel.call("asd_crc32", x, x.nbytes, crc)
    assert (left, int(crc[0])) in ((0, zlib.crc32(x.tobytes())), (1, 0))


def test_moments_are_those_of_numpy(kernel):
    x, out = draw(12_345, seed=6), np.zeros(4)
    assert kernel.call("asd_moments", x, x.size, out) == 0
    wide = x.astype(np.float64)
    np.testing.assert_allclose(out, (wide.max(), wide.min(), wide.sum(), (wide * wide).sum()), rtol=1e-6, atol=1e-3)
