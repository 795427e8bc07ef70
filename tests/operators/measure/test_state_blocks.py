"""Weights and state that are read in turns: each block in its turn, and what is known of all of them together."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from asd.operators.kernel import library as kernel
from asd.operators.measure.state.blocks import StateBlocks
from asd.operators.measure.state.extremes import StateExtremes
from asd.operators.measure.state.optimizer_state import OptimizerState
from asd.operators.measure.state.snapshot import SELDOM
from asd.operators.measure.state.tensors import StateTensors
from asd.operators.table import slots
from asd.rules.history.seal import BLOCK
from asd.rules.readings.reading import WEIGHT_GRADIENT, Reading

pytestmark = [
    pytest.mark.usefixtures("clean"),
    pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built"),
]


def adam(sizes=(3 * BLOCK // 4, 5, 40), dtype=ms.float32):
    ms.set_context(mode=1)
    slots.use_backend("kernel")
    random = np.random.default_rng(11)
    weights = [
        Parameter(Tensor(random.standard_normal(size).astype(np.float32), dtype), name=f"w{i}")
        for i, size in enumerate(sizes)
    ]
    return OptimizerState(nn.AdamWeightDecay(weights, 1e-3))


@pytest.mark.parametrize("turns", [1, 2, 3, 16])
def test_in_as_many_steps_as_there_are_turns_each_block_is_read_once(turns):
    blocks = StateBlocks(adam())
    blocks.turns = turns
    read = np.concatenate([blocks.read(step).chosen for step in range(20, 20 + turns)])
    assert sorted(read) == list(range(len(blocks.tensor_of)))
    assert len(blocks.tensor_of) == 3 * (3 + 1 + 1)


def test_turns_are_chosen_so_that_two_readings_take_what_was_granted_and_kept_while_they_nearly_do():
    blocks = StateBlocks(adam((SELDOM << 18,)))
    for seconds, turns in ((0.005, 4), (0.0051, 4), (0.003, 7), (1e-8, SELDOM), (1e4, 1), (0.0, SELDOM)):
        blocks._seconds.clear()
        blocks._seconds.append(0.01)
        blocks.pace(seconds)
        assert blocks.turns == turns


def test_what_is_small_is_read_whole_in_each_step():
    blocks = StateBlocks(adam())
    blocks._seconds.append(1.0)
    blocks.pace(1e-5)
    assert blocks.turns == 1


def test_a_tensor_that_is_given_another_value_is_found_at_its_new_place():
    state = adam()
    blocks, extremes = StateBlocks(state), StateExtremes(state)
    before = blocks.read(0)
    state.parameters[1].set_data(Tensor(np.full(5, -70.0, np.float32)))
    after = blocks.read(0)
    assert not after.equals(before)
    assert [old == new for old, new in zip(before.places, after.places, strict=True)] == [
        i != 1 for i in range(len(state.parameters))
    ]
    values, _ = extremes.take(after, blocks.tensor_of)
    assert (values["max_weight"], extremes.where["max_weight"]) == (70.0, "w1")


def test_the_extremes_are_those_of_all_blocks_though_only_some_are_read():
    state = adam()
    weight = state.parameters[0]
    blocks, extremes = StateBlocks(state), StateExtremes(state)
    extremes.take(blocks.read(0), blocks.tensor_of)
    blocks.turns = 4
    weight.asnumpy()[BLOCK // 4 + 3] = 50.0  # in its second block
    largest = [extremes.take(blocks.read(step), blocks.tensor_of)[0]["max_weight"] for step in range(4)]
    assert largest[0] < 6 < largest[1] == largest[2] == largest[3] == 50.0
    state.parameters[-1].asnumpy()[2] = -0.5
    values = [extremes.take(blocks.read(step), blocks.tensor_of)[0] for step in range(4)]
    assert values[-1]["min_adam_v"] == -0.5
    assert extremes.where["min_adam_v"] == state.parameters[-1].name


def test_what_is_not_finite_is_said_once_each_time_it_is_read():
    state = adam()
    blocks, extremes = StateBlocks(state), StateExtremes(state)
    blocks.turns = 4
    state.parameters[0].asnumpy()[0] = np.inf
    largest = [extremes.take(blocks.read(step), blocks.tensor_of)[0]["max_weight"] for step in range(6)]
    assert [bool(np.isnan(value)) for value in largest] == [True, False, False, False, True, False]
    assert extremes.where["max_weight"]


def test_moments_may_have_grown_by_the_gradients_since_they_were_read_before():
    state = adam((5, 5))
    blocks, extremes = StateBlocks(state), StateExtremes(state)
    blocks.turns = 2
    found = []
    for step in range(6):
        state.note([Reading("g", float(2**step), 0.0, 0, 1, kind=WEIGHT_GRADIENT)])
        _, growth = extremes.take(blocks.read(step), blocks.tensor_of)
        found.append(growth["max_adam_m"])
    beta1 = 0.9
    expected = [1, 1 + 2, 2 + 4, 4 + 8, 8 + 16, 16 + 32]
    assert found == pytest.approx([(1 - beta1) * each for each in expected], rel=1e-6)


def test_operators_read_the_same_extremes():
    state = adam()
    blocks, tensors = StateBlocks(state), StateTensors(state)
    values = [StateExtremes(state).take(reader.read(0), reader.tensor_of)[0] for reader in (blocks, tensors)]
    assert values[0] == values[1]
    assert set(values[0]) == {"max_weight", "max_adam_m", "max_adam_v", "min_adam_v"}


def test_what_operators_read_is_read_as_seldom_as_its_time_asks_for():
    tensors = StateTensors(adam())
    tensors._seconds.append(0.02)
    tensors.pace(0.005)
    assert [step for step in range(1, 13) if tensors.due(step)] == [4, 8, 12]
