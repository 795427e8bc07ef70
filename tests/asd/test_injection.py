"""Faults: written as text and read back, and the same corruption for the same seed."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asd import ConfigError
from asd.injection import PATTERNS, Fault
from benchmarks._host_fault import apply

TYPES = ("float16", "float32", "float64")
SHAPES = ((), (0,), (3, 0), (7,), (1,), (2, 3, 4))
AMOUNTS = {"flip": 9, "scale": 1e30, "set": math.inf, "stick": math.nan, "noise": 0.5, "factor": 4.0}
AMOUNTS |= {"zero": 2, "block": 2, "shift": 1}


def fault(pattern="flip", amount=None, **options):
    return Fault("gradient", "norm", pattern, AMOUNTS[pattern] if amount is None else amount, step=1, **options)


def array(dtype="float32", shape=(2, 3, 4)):
    return np.random.default_rng(0).normal(1.0, 0.1, shape).astype(dtype)


def bits(values):
    return np.ascontiguousarray(values).reshape(-1).view(f"u{values.dtype.itemsize}")


def corrupt(fault, before):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return apply(fault, before)


TEXTS = {
    "weight:w1:scale=1e6:step=10": Fault("weight", "w1", "scale", 1e6, 10, 1, None, 1, 0, 1.0),
    "update:^x=1$:set=inf:step=3:duration=7:rank=0": Fault("update", "^x=1$", "set", math.inf, 3, 7, 0),
    "sum:(?:a|b):c:zero=4:step=1:elements=2:seed=9:chance=1e-3": Fault(
        "sum", "(?:a|b):c", "zero", 4, 1, elements=2, seed=9, chance=1e-3
    ),
}


@pytest.mark.parametrize(("text", "fault"), TEXTS.items())
def test_a_fault_can_be_read_and_written(text, fault):
    assert Fault.parse(text) == Fault.parse(str(fault)) == fault


IN_STEP_3 = "gradient:a:{}:step=3".format
WRONG = {
    "": ["", "gradient::flip=3:step=3", *map(IN_STEP_3, ("flip=3:step=4", "flip=x", "twist=3", "flip=3:rank=all"))],
    " target": ("loss:a:flip=3:step=3",),
    " where": ("gradient:(:flip=3:step=3",),
    " step": ("gradient:a:flip=3:step=0",),
    " duration": ("gradient:a:flip=3:step=1:duration=0",),
    " rank": ("gradient:a:flip=3:step=1:rank=-1",),
    " chance": ("gradient:a:flip=3:step=1:chance=0", "gradient:a:flip=3:step=1:chance=nan"),
    " amount": [*map(IN_STEP_3, ("flip=64", "flip=-1", "zero=0", "zero=nan", "scale=inf", "noise=nan"))],
}


@pytest.mark.parametrize(("text", "field"), [(text, field) for field, texts in WRONG.items() for text in texts])
def test_a_text_or_a_field_that_is_not_valid_is_named(text, field):
    with pytest.raises(ConfigError) as caught:
        Fault.parse(text)
    assert caught.value.variable == f"fault{field}"


def test_a_fault_is_active_in_its_steps_on_its_rank():
    some = Fault.parse("gradient:a:flip=3:step=5:duration=2:rank=1")
    assert [step for step in range(1, 10) if some.is_active(step, rank=1)] == [5, 6]
    assert not any(some.is_active(step, rank=0) for step in range(1, 10))
    assert Fault.parse("gradient:a:flip=3:step=5").is_active(5, rank=17)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_type_and_shape_stay_and_the_original_is_not_touched(dtype, shape, pattern):
    before = array(dtype, shape)
    kept = before.copy()
    after = corrupt(fault(pattern), before)
    assert (after.dtype, after.shape) == (before.dtype, before.shape)
    assert np.array_equal(bits(before), bits(kept))
    assert (bits(before) != bits(after)).any() == (before.size > (pattern == "shift"))


@given(data=st.data(), dtype=st.sampled_from(TYPES), seed=st.integers(0, 2**32), elements=st.integers(1, 40))
def test_a_flip_changes_one_bit_of_each_chosen_element_and_flips_back(data, dtype, seed, elements):
    before = array(dtype)
    bit = data.draw(st.integers(0, 8 * before.itemsize - 1))
    flip = fault("flip", bit, seed=seed, elements=elements)
    after = corrupt(flip, before)
    changed = bits(before) ^ bits(after)
    assert sorted(set(changed.tolist())) == sorted({0, 1 << bit} if elements < before.size else {1 << bit})
    assert np.count_nonzero(changed) == min(elements, before.size)
    assert np.array_equal(bits(corrupt(flip, after)), bits(before))


@pytest.mark.parametrize(("dtype", "bit"), [("float16", 16), ("float32", 32)])
def test_a_bit_that_the_type_lacks_is_an_error(dtype, bit):
    with pytest.raises(ConfigError, match=f"fault flip .* {bit}, .*for {dtype} is 0 to {bit - 1}"):
        apply(fault("flip", bit), array(dtype))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_seed_decides(pattern):
    results = {apply(fault(pattern, seed=seed), array(shape=(6, 50))).tobytes() for seed in range(10)}
    # One strikes all elements, and one has as many places as its period.
    assert len(results) > {"factor": 0, "zero": 2, "shift": 2}.get(pattern, 5)


def test_each_pattern_does_what_it_says():
    before = array(shape=(4, 5))
    scaled = corrupt(fault("scale", 2.0, elements=3), before)
    assert np.count_nonzero(scaled == 2 * before) == 3
    assert np.count_nonzero(scaled == before) == 17
    assert np.count_nonzero(corrupt(fault("set", 7.5, elements=2), before) == 7.5) == 2
    stuck = corrupt(fault("stick", -1.0), before)
    assert [int(column.all()) for column in (stuck == -1.0).T].count(1) == 1
    assert np.count_nonzero(stuck == -1.0) == 4
    assert (corrupt(fault("factor", 4.0), before) == 4 * before).all()
    rows, columns = np.nonzero(corrupt(fault("zero", 2), before) == 0)
    assert {*np.diff(np.unique(rows)), *np.diff(np.unique(columns))} == {2}
    noise = corrupt(fault("noise", 0.01), np.ones(10_000)) - 1
    assert noise.std() == pytest.approx(0.01, rel=0.05)
    assert noise.mean() == pytest.approx(0, abs=0.001)


@pytest.mark.parametrize("chance", [1.0, 0.5, 0.01])
def test_an_intermittent_device_strikes_calls_by_chance_other_elements_each_time_and_the_same_calls_again(chance):
    some = fault("zero", 4, chance=chance, duration=10**6, seed=3)
    struck = {call: some.of_call(call) for call in range(4000)}
    hit = [call for call, each in struck.items() if each is not None]
    assert len(hit) == pytest.approx(4000 * chance, rel=0.3)
    assert [call for call in range(4000) if some.of_call(call) is not None] == hit
    results = {apply(struck[call], array(shape=(8, 8))).tobytes() for call in hit[:20]}
    assert (len(results) > 3) is (chance < 1)
