"""What exactly the seal answers."""

from asd.rules.history.seal import BLOCK, Seal, Sealed
from asd.verdict import Level, Verdict

HEALTHY = Verdict(Level.NORMAL, "", 0.0, 0.0)
BEFORE = {"w": Sealed(0, tuple(range(1000, 1256))), "b": Sealed(0, (5,))}


def with_changed(*blocks):
    hashes = tuple(value + 5000 * (i in blocks) for i, value in enumerate(BEFORE["w"].hashes))
    return {**BEFORE, "w": Sealed(0, hashes)}


def taught():
    seal = Seal()
    assert [seal.update(step, BEFORE, BEFORE) for step in (1, 2)] == [HEALTHY] * 2
    return seal


def test_blocks_have_64_kibibytes_and_a_new_seal_judges_no_tensor():
    assert BLOCK == 65536
    assert not Seal().judges("w")


def test_nothing_is_named_before_a_verdict_or_after_a_healthy_step():
    assert Seal().name == ""
    seal = taught()
    assert seal.update(3, BEFORE, with_changed(7)).level is Level.ERROR
    assert seal.name == "w"
    assert seal.update(4, BEFORE, BEFORE) == HEALTHY
    assert seal.name == ""


def test_an_error_says_the_first_block_and_how_many_more():
    assert taught().update(3, BEFORE, with_changed(7)) == Verdict(
        Level.ERROR, "state: w changed between steps 3 and 4, in block 8", 1.0, 0.0
    )
    assert taught().update(3, BEFORE, with_changed(7, 9)) == Verdict(
        Level.ERROR, "state: w changed between steps 3 and 4, in block 8 and 1 more", 2.0, 0.0
    )
    assert taught().update(3, BEFORE, with_changed(7, 9, 11)).reason.endswith("in block 8 and 2 more")


def test_a_change_in_one_of_64_blocks_is_accepted_with_a_healthy_verdict():
    seal = taught()
    assert seal.update(3, BEFORE, with_changed(0, 1, 2, 3)).level is Level.ERROR  # 4 of 257 are less
    seal = taught()
    assert seal.update(3, BEFORE, with_changed(0, 1, 2, 3, 4)) == HEALTHY
    assert seal.accepted == 1


def test_a_change_in_the_second_comparison_is_the_programs_own():
    seal = Seal()
    seal.update(1, BEFORE, BEFORE)
    assert seal.update(2, BEFORE, with_changed(7)) == HEALTHY
    assert seal.update(3, BEFORE, with_changed(7)) == HEALTHY
    assert not seal.judges("w")


def test_hashes_that_are_equal_but_not_the_same_objects_are_no_change():
    copied = {"w": Sealed(0, tuple(int(str(each)) for each in BEFORE["w"].hashes)), "b": Sealed(0, (5,))}
    changed = {**copied, "w": Sealed(0, (1, *copied["w"].hashes[1:]))}
    assert taught().update(3, BEFORE, changed).value == 1.0
