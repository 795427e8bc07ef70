"""The vote over the hashes of all ranks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.diagnosis.weights import compare
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


def test_a_manifest_learns_later_that_its_weights_can_not_be_trusted(tmp_path):
    file = tmp_path / "a.ckpt"
    file.write_bytes(b"weights")
    taint(file, 3)
    assert not manifest_path(file).exists()
    write_manifest(file, step=4, origin=Origin("r", 0, "h", "CPU:0"), health=Health())
    taint(file, 3)
    taint(file, 9)
    assert load_manifest(manifest_path(file)).tainted_from == 3
