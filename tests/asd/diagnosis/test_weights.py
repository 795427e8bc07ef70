"""The vote over the hashes of all ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.diagnosis.weights import compare, compare_some
from asd.origin import Origin
from asd.rundir.manifest import Health, load_manifest, manifest_path, taint, write_manifest

NAMES = ("a", "b", "c")
GOOD, BAD, WORSE = (1, 2, 3), (1, 9, 3), (1, 8, 7)


@given(st.integers(1, 9), st.tuples(*[st.integers(0, 2**64 - 1)] * 3))
def test_ranks_that_are_alike_are_fine(size, hashes):
    assert compare([hashes] * size, NAMES) is None


@given(st.integers(3, 9), st.data())
def test_one_odd_rank_is_named_wherever_it_is(size, data):
    odd = data.draw(st.integers(0, size - 1))
    found = compare([BAD if rank == odd else GOOD for rank in range(size)], NAMES)
    assert (found.odd, found.weights) == ((odd,), ("b",))
    assert f"rank {odd} differs " in found.reason


@pytest.mark.parametrize(
    ("hashes", "odd", "reason"),
    [
        ([GOOD, BAD], (), "the two ranks differ in b"),
        ([GOOD, GOOD, GOOD, BAD, WORSE], (3, 4), "ranks 3, 4 differ from the other 3"),
        ([GOOD, BAD, WORSE], (), "(1 and 1 and 1)"),
        ([GOOD, GOOD, BAD, BAD], (), "(2 and 2)"),
    ],
)
def test_without_a_majority_nobody_is_named(hashes, odd, reason):
    found = compare(hashes, NAMES)
    assert (found.odd, reason in found.reason) == (odd, True)


def test_sums_without_a_norm_or_near_0_are_near_and_one_that_is_infinite_is_not():
    apart = {}
    for most, one, odd in [((5, 0.1), (5.01, 0.1), ()), ((0, 0), (1e-6, 1e-9), ()), ((5, 0.1), (1e38, 1e999), (1,))]:
        sums = {"w": (most, one, most), "v": [(0, 0), (1e-24, 0), (0, 0)], "x": [[float("nan")] * 2 for _ in "abc"]}
        told = [{name: [name != "x" and i % 2, *each[i]] for name, each in sums.items()} for i in range(3)]
        assert compare_some(range(3), told, apart)[::3] == (odd, not odd)


def test_a_manifest_learns_later_that_its_weights_can_not_be_trusted(tmp_path):
    file = tmp_path / "a.ckpt"
    file.write_bytes(b"weights")
    taint(file, 3)
    assert not manifest_path(file).exists()
    write_manifest(file, step=4, origin=Origin("r", 0, "h", "CPU:0"), health=Health())
    taint(file, 3)
    taint(file, 9)
    assert load_manifest(manifest_path(file)).tainted_from == 3
