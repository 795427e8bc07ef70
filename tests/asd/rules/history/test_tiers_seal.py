"""What the seal takes for a fault between two steps, and what for the program's own doing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.errors import StateError
from asd.rules.history.seal import Seal, Sealed
from asd.verdict import Level

NAMES = ("weight", "bias", "moment1.weight", "moment1.bias")


def tensors(blocks=(100, 1, 100, 1)):
    return {
        name: Sealed((1000 + i, 0), tuple(range(size)))
        for i, (name, size) in enumerate(zip(NAMES, blocks, strict=True))
    }


def changed(state, name, blocks=(0,), place=None):
    old = state[name]
    hashes = tuple(value + 1000 * (i in blocks) for i, value in enumerate(old.hashes))
    return {**state, name: Sealed(old.place if place is None else place, hashes)}


def taught(comparisons=3):
    seal = Seal()
    for step in range(comparisons):
        assert seal.update(step, tensors(), tensors()).level is Level.NORMAL
    return seal


def test_one_changed_block_is_named_with_its_tensor():
    seal = taught()
    verdict = seal.update(9, tensors(), changed(tensors(), "moment1.weight", (41,)))
    assert (verdict.level, verdict.value, seal.name) == (Level.ERROR, 1.0, "moment1.weight")
    assert verdict.reason == "state: moment1.weight changed between steps 9 and 10, in block 42"


@pytest.mark.parametrize(("count", "level"), [(3, Level.ERROR), (4, Level.NORMAL)])
def test_a_fault_changes_at_most_a_64th_of_all_blocks(count, level):
    assert taught().update(9, tensors(), changed(tensors(), "weight", range(count))).level is level


def test_a_tensor_that_changed_as_a_whole_is_a_fault_where_nothing_ran_that_may_have_written_it():
    verdict = taught().update(9, tensors(), changed(tensors(), "weight", range(100)), traced=False)
    assert (verdict.level, verdict.value) == (Level.ERROR, 100.0)


def test_what_the_program_writes_itself_hides_no_fault_beside_it():
    seal = Seal()
    for step in range(5):
        assert seal.update(step, tensors(), changed(tensors(), "bias")).level is Level.NORMAL
    assert [seal.judges(name) for name in ("weight", "bias")] == [True, False]
    assert seal.update(9, tensors(), changed(changed(tensors(), "bias"), "weight")).level is Level.ERROR


def test_nothing_is_judged_before_it_is_known_what_the_program_writes():
    seal = Seal()
    assert not seal.judges("weight")
    for step in range(2):
        seal.update(step, {}, {})
    assert seal.judges("weight")


def test_the_only_block_of_a_small_network_is_not_too_many():
    small = {"w": Sealed(0, (1,))}
    seal = Seal()
    for step in range(2):
        seal.update(step, small, small)
    assert seal.update(2, small, {"w": Sealed(0, (2,))}).level is Level.ERROR


def deliberate_changes():
    clean = tensors()
    yield {name: changed(clean, name)[name] for name in NAMES}  # a checkpoint was loaded in place
    yield changed(changed(clean, "weight"), "bias")
    yield changed(clean, "weight", place=(7, 0))  # set_data
    yield changed(clean, "weight", place=(1000, 1))  # an operator in place
    yield changed(clean, "weight") | {"bias": Sealed((8, 0), clean["bias"].hashes)}  # another one was written as well
    yield changed(clean, "weight") | {"more": Sealed((9, 0), (1,))}
    yield {"weight": changed(clean, "weight")["weight"]}
    yield tensors((99, 1, 100, 1))


@pytest.mark.parametrize("before", list(deliberate_changes()))
def test_what_a_program_does_on_purpose_is_accepted_and_a_fault_later_is_still_found(before):
    seal = taught()
    assert seal.update(9, tensors(), before).level is Level.NORMAL
    assert seal.accepted == 1
    assert seal.update(10, tensors(), changed(tensors(), "weight")).level is Level.ERROR


def test_a_tensor_that_the_program_writes_between_its_first_steps_is_left_alone():
    seal = Seal()
    for step in range(9):
        assert seal.update(step, tensors(), changed(tensors(), "bias")).level is Level.NORMAL
    assert seal.update(9, tensors(), changed(tensors(), "weight")).level is Level.ERROR


def test_a_tensor_is_flagged_once():
    seal = taught()
    levels = [seal.update(step, tensors(), changed(tensors(), "weight")).level for step in range(2)]
    assert levels == [Level.ERROR, Level.NORMAL]


@given(st.lists(st.sampled_from([*NAMES, ""]), max_size=8))
def test_a_seal_goes_on_from_its_saved_state(names):
    seal = Seal()
    for step, name in enumerate(names):
        before = changed(tensors(), name) if name else tensors()
        twin = Seal()
        twin.restore(json.loads(json.dumps(seal.state())))
        assert twin.update(step, tensors(), before) == seal.update(step, tensors(), before)
        assert twin.state() == seal.state()


@pytest.mark.parametrize(
    "state", [{}, {"accepted": 0, "comparisons": -1, "written": []}, {"accepted": 0, "comparisons": 1, "written": [1]}]
)
def test_a_damaged_state_is_refused_and_changes_nothing(state):
    seal = taught()
    known = seal.state()
    with pytest.raises(StateError, match="seal"):
        seal.restore(state)
    assert seal.state() == known
