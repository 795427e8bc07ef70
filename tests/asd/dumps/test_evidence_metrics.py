"""How far apart two tensors are: against plain NumPy, on every type, in any order, in constant memory."""

import contextlib
import gc
import math
import os
import sys
import threading
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from asd.dumps.compare import metrics
from asd.dumps.compare.metrics import compare_files
from asd.dumps.formats.npy_file import NpyFile
from asd.dumps.formats.torch_file import TorchFile
from asd.errors import StateError
from tests.asd.dumps import dumps

PAIRS = hnp.array_shapes(min_dims=1, max_dims=3, max_side=6).flatmap(
    lambda shape: st.tuples(
        *[hnp.arrays(np.float32, shape, elements=st.floats(-1e4, 1e4, width=32, allow_subnormal=False))] * 2
    )
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tensors")


def compare(folder, ours, theirs):
    np.save(folder / "a.npy", ours)
    np.save(folder / "b.npy", theirs)
    with NpyFile(folder / "a.npy") as a, NpyFile(folder / "b.npy") as b:
        return compare_files(a, b)


@given(PAIRS)
def test_the_metrics_are_those_of_their_formulas(folder, pair):
    ours, theirs = pair
    found = compare(folder, ours, theirs)
    n, b = (array.astype(np.float64).ravel() for array in pair)
    eps = np.finfo(np.float64).eps
    relative = np.abs(n - b) / np.where(b == 0, eps, np.abs(b))
    assert found.max_abs == np.abs(n - b).max()
    assert found.max_relative == pytest.approx(relative.max())
    assert found.euclidean == pytest.approx(np.linalg.norm(n - b))
    assert found.thousandth == (relative < 0.001).mean()
    assert found.five_thousandths == (relative < 0.005).mean()
    norms = np.linalg.norm(n), np.linalg.norm(b)
    if n.size < 2:
        assert found.cosine == "unsupported"
    elif max(norms) <= eps:
        assert found.cosine == 1.0
    elif min(norms) <= eps:
        assert found.cosine == "Nan"
    else:
        assert found.cosine == pytest.approx(n @ b / norms[0] / norms[1], abs=1e-12)


@given(PAIRS)
def test_the_bits_are_the_same_exactly_when_the_arrays_are(folder, pair):
    ours, theirs = pair
    found = compare(folder, ours, theirs)
    differing = (ours.view(np.uint32) != theirs.view(np.uint32)).sum()
    assert found.same_bits == (differing == 0)
    assert (found.difference.count if found.difference else 0) == differing


@given(PAIRS, st.integers(1, 7))
def test_the_size_of_the_pieces_changes_nothing(folder, pair, piece):
    whole = compare(folder, *pair)
    before, metrics.PIECE = metrics.PIECE, piece
    try:
        cut = compare(folder, *pair)
    finally:
        metrics.PIECE = before
    assert cut.difference == whole.difference
    assert (cut.max_abs, cut.max_relative, cut.thousandth) == (whole.max_abs, whole.max_relative, whole.thousandth)
    if isinstance(whole.cosine, float):
        assert cut.cosine == pytest.approx(whole.cosine, abs=1e-12)


@given(PAIRS)
def test_the_order_in_which_the_elements_are_stored_changes_nothing(folder, pair):
    ours, theirs = pair
    straight, turned = compare(folder, ours, theirs), compare(folder, np.asfortranarray(ours), theirs)
    assert turned.difference == straight.difference
    assert turned.max_abs == straight.max_abs


@pytest.mark.parametrize("bit", [0, 22, 23, 30, 31])
def test_one_flipped_bit_is_shown_with_its_place_and_both_values(folder, bit):
    theirs = np.linspace(0.5, 2, 60, dtype=np.float32).reshape(3, 4, 5)
    ours = theirs.copy()
    ours.view(np.uint32)[1, 2, 3] ^= np.uint32(1 << bit)
    difference = compare(folder, ours, theirs).difference
    assert difference.is_one_flip
    assert (difference.count, difference.size, difference.index, difference.flipped) == (1, 60, (1, 2, 3), (bit,))
    assert difference.trusted == theirs[1, 2, 3]
    assert int(difference.bits[0], 16) ^ int(difference.bits[1], 16) == 1 << bit


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i4", "i8", "u1", "?", "c8", "c16", ">f4"])
def test_every_type_of_number_is_compared(folder, dtype):
    theirs = np.arange(6).astype(dtype)
    ours = theirs.copy()
    ours[2] = 0
    found = compare(folder, ours, theirs)
    assert found.max_abs == (1.0 if dtype == "?" else 2.0)
    assert found.difference.count == 1
    assert found.thousandth < 1
    assert compare(folder, theirs, theirs).same_bits is True
    assert (compare(folder, ours.astype("c8"), theirs).max_abs == "unsupported") is (theirs.dtype.kind != "c")


def test_a_difference_of_one_between_huge_integers_is_seen(folder):
    theirs = np.array([2**62, 5], np.int64)
    assert compare(folder, theirs + np.array([1, 0]), theirs).max_abs == 1.0


def test_huge_and_tiny_doubles_keep_a_cosine(folder):
    huge, tiny = np.array([3e300, 4e300]), np.array([3e-160, 4e-160])
    assert compare(folder, huge, huge[::-1].copy()).cosine == pytest.approx(0.96)
    assert compare(folder, tiny, tiny * 2).cosine == 1.0  # both below epsilon
    assert compare(folder, np.array([1e300, 1.0]), np.array([1.0, 1.0])).factor == 5e299


def test_bfloat16_bits_equal_the_float32_of_the_same_values(folder):
    values = np.array([1.0, -2.0, 0.0], np.float32)
    as_bits = (values.view(np.uint32) >> 16).astype(np.uint16).view("V2")
    found = compare(folder, as_bits, values)
    assert (found.same_bits, found.max_abs, found.cosine) == (True, 0.0, 1.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_inf_and_nan_at_the_same_place_count_as_no_difference(folder, bad):
    theirs = np.array([1, bad, 3, 4], np.float32)
    found = compare(folder, theirs + np.float32([0, 0, 0, 1]), theirs)
    assert (found.max_abs, found.message) == (1.0, "")


@pytest.mark.parametrize(("ours", "theirs"), [(np.nan, 1), (1, np.inf), (np.inf, np.nan), (np.inf, -np.inf)])
def test_inf_and_nan_at_different_places_can_not_be_measured(folder, ours, theirs):
    found = compare(folder, np.float32([1, ours]), np.float32([1, theirs]))
    assert (found.cosine, found.max_abs) == ("N/A", "N/A")
    assert "different places" in found.message
    assert found.difference.count == 1


def test_empty_tensors_have_words_for_metrics(folder):
    assert compare(folder, np.zeros((0, 3)), np.zeros((0, 3))).cosine == "unsupported"
    assert compare(folder, np.float32(2), np.float32(3)).max_abs == 1.0


HARMS = {
    "cut short": lambda path: os.truncate(path, path.stat().st_size - 20),
    "too few elements": lambda path: path.write_bytes(path.read_bytes().replace(b"(100,)", b"(999,)")),
    "giant": lambda path: path.write_bytes(path.read_bytes().replace(b"(100,), }    ", b"(10**99,), } ")),
    "text": lambda path: path.write_text("not a tensor"),
    "of fields": lambda path: np.save(path, np.zeros(3, [("a", "f4"), ("b", "i4")])),
    "of texts": lambda path: np.save(path, np.array(["a", "b"])),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_npy_is_told_in_one_sentence(folder, harm):
    path = folder / "harmed.npy"
    np.save(path, np.zeros(100, np.float32))
    HARMS[harm](path)
    with pytest.raises(StateError, match=r"harmed\.npy") as caught:
        NpyFile(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
@pytest.mark.parametrize("turn", [np.ascontiguousarray, np.asfortranarray])
def test_a_file_of_torch_is_read_without_torch(folder, dtype, turn):
    array = turn((np.arange(24).reshape(2, 3, 4) * 1.5).astype(dtype))
    dumps.save_pt(folder / "t.pt", array)
    np.save(folder / "t.npy", array)
    with TorchFile(folder / "t.pt") as ours, NpyFile(folder / "t.npy") as theirs:
        assert ours.shape == (2, 3, 4)
        assert compare_files(ours, theirs).same_bits is True


def test_a_pickle_in_a_file_of_torch_is_never_run(folder):
    marker = folder / "torch_ran"
    command = b"touch " + bytes(marker)
    pickled = b"\x80\x02cos\nsystem\nX" + len(command).to_bytes(4, "little") + command + b"\x85R."
    with zipfile.ZipFile(folder / "bomb.pt", "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
    with pytest.raises(StateError, match="no file of one tensor"):
        TorchFile(folder / "bomb.pt")
    assert not marker.exists()


def test_a_file_of_torch_that_is_harmed_anywhere_is_read_or_refused(folder):
    dumps.save_pt(folder / "t.pt", np.ones((3, 4), np.float32))
    whole, draw = (folder / "t.pt").read_bytes(), np.random.default_rng(3)
    for _ in range(300):
        harmed = bytearray(whole)
        for place in draw.integers(0, len(whole), 3):
            harmed[place] = draw.integers(0, 256)
        (folder / "t.pt").write_bytes(harmed[: draw.integers(len(whole) // 2, len(whole) + 1)])
        with contextlib.suppress(StateError, OSError), TorchFile(folder / "t.pt") as file:
            assert sum(piece.size for piece in file.pieces(5)) == file.size


@pytest.mark.parametrize("numbers", [b"J\xff\xff\xff\x7f" * 13_000, b"K\x01", b"\x8a\xff" + b"\x7f" * 255 + b"K\x00"])
def test_a_description_of_a_tensor_that_is_none_is_refused_at_once(folder, numbers):
    with zipfile.ZipFile(folder / "huge.pt", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02ctorch\nFloatStorage\n" + numbers + b".")
        archive.writestr("archive/data/0", b"abcd")
    with pytest.raises(StateError, match="describes something else|cut short or foreign"):
        TorchFile(folder / "huge.pt")


def test_equal_bytes_need_no_arithmetic(folder, monkeypatch):
    monkeypatch.setattr(metrics._Sums, "add", lambda *_: pytest.fail("it computed"))
    array = np.random.default_rng(0).standard_normal(100_000)
    found = compare(folder, array, array)
    assert (found.cosine, found.max_abs, found.thousandth) == (1.0, 0.0, 1.0)
    assert math.isclose(found.euclidean, 0.0)


class _Litter:
    def __init__(self):
        self.me = self

    def __del__(self):
        for _ in range(20):
            pass


def test_threads_that_read_headers_at_once_do_not_disturb_one_another(tmp_path):
    """In Python 3.11 a thread that parses may lose its place to another while garbage is collected."""
    path, errors = tmp_path / "a.npy", []
    np.save(path, np.ones(3, np.float32))

    def deep(depth):
        return deep(depth - 1) if depth else NpyFile(path).close()

    def read(depth):
        try:
            for _ in range(400):
                _Litter()
                deep(depth)
        except SystemError as error:
            errors.append(error)

    before, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(20), sys.setswitchinterval(1e-6)
    try:
        readers = [threading.Thread(target=read, args=(7 * number,)) for number in range(8)]
        for each in readers:
            each.start()
        for each in readers:
            each.join()
    finally:
        gc.set_threshold(*before), sys.setswitchinterval(interval)
    assert errors == []
