"""The inputs of a call that is made again: those of the dump, or made ones."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd.dumps.formats.slots import Slot, SlotForm
from asd.errors import StateError
from asd.operators.debugger.precheck.inputs import Inputs, to_bfloat16


def described(dtype, shape, low, high, name=None):
    return Slot.of(SlotForm("input.0", "input", dtype, shape), (high, low, None, None), name=name)


def test_a_tensor_of_another_shape_than_the_dump_says_is_refused(tmp_path):
    (tmp_path / "dump_tensor_data").mkdir()
    np.save(tmp_path / "dump_tensor_data" / "a.npy", np.zeros(3, np.float32))
    inputs = Inputs(tmp_path / "dump.json", real=True)
    with pytest.raises(StateError, match=r"a.npy .* \[3\], .* Float32 \[4\]"):
        inputs.value(described("Float32", (4,), 0.0, 1.0, "a.npy"), inputs.generator("x"))


@given(
    st.sampled_from(["Float16", "Float32", "Float64", "BFloat16"]),
    st.lists(st.floats(-1000, 1000, width=16), min_size=2, max_size=2).map(sorted),
)
def test_made_inputs_lie_between_min_and_max_and_are_the_same_each_time(dtype, limits):
    inputs = Inputs(Path("dump.json"), real=False)
    low, high = (
        (float(to_bfloat16(np.array([limit], np.float32))[0]) for limit in limits) if dtype == "BFloat16" else limits
    )
    slot = described(dtype, (4, 5), low, high, None)
    first, second = (inputs.value(slot, inputs.generator("Mint.mul.0")).array for _ in range(2))
    assert first.shape == (4, 5)
    assert (first >= low).all()
    assert (first <= high).all()
    np.testing.assert_array_equal(first, second)


def test_made_integers_reach_both_limits():
    inputs = Inputs(Path("dump.json"), real=False)
    value = inputs.value(described("Int32", (200,), 3.0, 5.0, None), inputs.generator("x")).array
    assert value.dtype == np.int32
    assert set(value.tolist()) == {3, 4, 5}


@pytest.mark.parametrize(
    ("shape", "high", "why"), [((2,), np.inf, "no values lie between"), ((1 << 20, 1 << 20), 1.0, "has more than")]
)
def test_inputs_with_inf_and_a_huge_tensor_are_not_made(shape, high, why):
    inputs = Inputs(Path("dump.json"), real=False)
    with pytest.raises(StateError, match=why):
        inputs.value(described("Float32", shape, 0.0, high, None), inputs.generator("x"))


def test_bfloat16_is_rounded_to_nearest_even():
    given_ = np.array([1.0, 1.00390625, 1.01171875, 3.4e38, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(to_bfloat16(given_)[:3], np.array([1.0, 1.0, 1.015625], np.float32))
    assert np.isnan(to_bfloat16(given_)[5])
