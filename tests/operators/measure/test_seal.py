"""A bit that flips between two steps: it is found before the next one, and what programs do on purpose is not."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import Decoder, fill, ids, one_step_cell, targets
from mindspore import Parameter, nn

from asd import AnomalyDetected, Config
from asd.operators import StepMonitor
from asd.operators.inject import gradient_fault
from asd.operators.kernel import library as kernel
from asd.operators.kernel.blocks import hashes_of_blocks
from asd.operators.measure.state.blocks import StateBlocks
from asd.operators.measure.state.optimizer_state import OptimizerState
from asd.operators.measure.state.seal import StateSeal
from asd.rules.history.seal import BLOCK

pytestmark = [
    pytest.mark.usefixtures("clean"),
    pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built"),
]
BIT = 1 << 12  # changes a value by a thousandth at most


class Training:
    """A decoder that is trained by Adam in a loop of its own."""

    def __init__(self, folder, around=None, **config):
        self.net = fill(Decoder())
        self.optimizer = nn.Adam(self.net.trainable_params(), 1e-3)
        settings = {"rule": "adaptive", "on_anomaly": "skip", "tiers": ("finite", "state")} | config
        self.events = []
        config = Config(protection="document", enable=1, run_dir=str(folder), **settings)
        self.monitor = StepMonitor(config, sinks=[self.events.append])
        self.monitor.attach(self.net, self.optimizer)
        self.cell = around(self.net) if around is not None else self.net
        self.train = one_step_cell(self.cell, self.optimizer)
        self._step = self.monitor.watch_step(self.train)
        self.steps = 0

    def step(self, count=1):
        for _ in range(count):
            loss = self._step(ids(self.steps), targets(self.steps))
            self.monitor.step(loss)
            self.steps += 1

    def state(self):
        return {each.name: each.asnumpy().copy() for each in self.optimizer.get_parameters() if each.size >= 8}

    def __getitem__(self, name):
        return next(each for each in self.optimizer.get_parameters() if each.name == name)

    def found(self):
        return [(event.step, event.checkpoint, event.reason) for event in self.events if event.kind == "anomaly"]


def flip(parameter, element=3):
    """As memory does it: nothing is called that writes."""
    parameter.asnumpy().reshape(-1).view(np.uint32)[element] ^= BIT


def test_a_bit_that_flips_between_two_steps_is_found_before_the_next_and_what_is_loaded_is_not(mode, tmp_path):
    training = Training(tmp_path)
    training.step(4)
    flip(training["blocks.0.up.weight"])
    training.step(2)
    flip(training["moment1.blocks.1.down.weight"])
    training.step()
    expected = [
        (5, "blocks.0.up.weight", "state: blocks.0.up.weight changed between steps 4 and 5, in block 1"),
        (7, "moment1.blocks.1.down.weight",
         "state: moment1.blocks.1.down.weight changed between steps 6 and 7, in block 1"),
    ]  # fmt: skip
    assert training.found() == expected
    assert training.monitor._training.health.tainted_from == 4

    file = str(tmp_path / "weights.ckpt")
    ms.save_checkpoint(training.net, file)
    training.step()
    ms.load_checkpoint(file, training.net)  # all of them
    training.step()
    weight = training["norm_out.gamma"]
    weight.set_data(weight * 1.001)  # one only
    training.step()
    ms.load_param_into_net(training.net, {weight.name: Parameter(weight.asnumpy() * 2, name=weight.name)})
    training.step()
    for each in training.optimizer.parameters:  # a moving average: nothing tells that it was written
        ms.ops.assign(each, each * 0.999)
    training.step()
    assert training.found() == expected


class Fault(nn.Cell):
    """Strikes memory where the backward pass begins, once it is armed."""

    def __init__(self, net):
        super().__init__(auto_prefix=False)
        self.net, self.fault, self.due = net, gradient_fault(self.strike), None

    def construct(self, *batch):
        return self.fault(self.net(*batch))

    def strike(self, gradient):
        due, self.due = self.due, None
        if due is not None:
            due()
        return gradient


def scale(parameter, factor):
    memory = parameter.asnumpy()
    memory *= np.float32(factor)


def test_the_gate_refuses_an_update_when_a_tensor_changed_since_the_last_one_whenever_that_was(mode, tmp_path):
    training = Training(tmp_path, Fault)
    training.step(4)
    expected = []
    strikes = (
        ("blocks.0.up.weight", flip, True), ("moment1.blocks.1.down.weight", lambda each: scale(each, 4), True),
        ("blocks.1.up.weight", lambda each: scale(each, 0), False),
    )  # fmt: skip
    for name, strike, in_backward in strikes:
        struck = []

        def fault(name=name, strike=strike, struck=struck):
            strike(training[name])
            struck.append(True)

        if in_backward:
            training.cell.due = fault
        else:
            fault()
        before = training.state()
        training.step()
        assert struck
        others = [np.array_equal(now, before[each]) for each, now in training.state().items() if each != name]
        assert others
        assert all(others)
        expected.append((training.steps, name, True))
        training.step()
    found = [(event.step, event.checkpoint, event.refused) for event in training.events if event.kind == "anomaly"]
    assert found == expected
    assert training.monitor._training.health.tainted_from == 4


def test_a_tensor_that_the_program_writes_before_the_step_leaves_a_trace_and_is_no_fault(mode, tmp_path):
    training = Training(tmp_path)
    training.step(4)
    weight = training["norm_out.gamma"]

    @ms.jit
    def average():
        ms.ops.assign(weight, weight * 0.999)
        return weight.sum()

    for write in (
        lambda: ms.ops.assign(weight, weight * 0.999),
        lambda: weight.__setitem__(0, ms.Tensor(0.5, ms.float32)),
        lambda: weight.copy_(weight * 0.999),
        average,
        average,
    ):
        training.monitor.remember(training.train, ids(0), targets(0))
        write()  # as a callback does that is told of the beginning of the step later
        training.monitor.step(training.train(ids(training.steps), targets(training.steps)))
        training.steps += 1
    assert training.found() == []


def test_an_update_that_came_out_wrong_is_named_when_a_sample_of_it_is_computed_again(mode, tmp_path):
    training = Training(tmp_path)
    training.step(14)
    loss = training._step(ids(14), targets(14))
    loss.asnumpy()
    for weight in training.optimizer.parameters:
        memory = weight.asnumpy()
        memory += np.float32(0.01)
    training.monitor.step(loss)
    assert [(event.step, event.feature) for event in training.events] == [(15, "update")]
    assert training.monitor._training.state._updates.judged == 14 * 2


class Shrinking(nn.Cell):
    """Shrinks a weight of its own in the forward pass, now and then."""

    def __init__(self, net):
        super().__init__(auto_prefix=False)
        self.net, self.factor = net, Parameter(np.ones(1, np.float32), name="factor", requires_grad=False)

    def construct(self, *batch):
        gamma = self.net.norm_out.gamma
        ms.ops.assign(gamma, gamma * self.factor)
        return self.net(*batch)


def test_a_tensor_that_the_forward_pass_writes_now_and_then_is_no_fault_and_others_are_still_judged(mode, tmp_path):
    training = Training(tmp_path, Shrinking)
    training.step(4)
    training.cell.factor.set_data(ms.Tensor([0.5], ms.float32))
    training.step()
    assert training.found() == []
    flip(training["blocks.0.up.weight"])
    training.step()
    assert [(step, name) for step, name, _ in training.found()] == [(6, "blocks.0.up.weight")]


class FlipAfter(ms.Callback):
    """Flips a bit after step 3 and keeps the weights that are there then."""

    def __init__(self, parameters, name):
        super().__init__()
        self.parameters, self.name, self.kept = parameters, name, []

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == 3:
            flip(next(each for each in self.parameters if each.name == self.name))
            self.kept = [each.asnumpy().copy() for each in self.parameters]


def test_with_stop_model_train_ends_before_the_step(tmp_path):
    ms.set_context(mode=1)
    net = fill(Decoder())
    optimizer = nn.Momentum(net.trainable_params(), 1e-3, 0.9)
    config = Config(
        protection="document",
        enable=1,
        run_dir=str(tmp_path),
        rule="adaptive",
        tiers=("finite", "state"),
        on_anomaly="stop",
    )
    flips = FlipAfter(optimizer.parameters, "blocks.0.up.weight")
    rows = [(ids(i).asnumpy(), targets(i).asnumpy()) for i in range(5)]
    data = ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False)
    model = ms.Model(net, optimizer=optimizer)
    with pytest.raises(AnomalyDetected, match=r"blocks\.0\.up\.weight changed between steps 3 and 4"):
        model.train(1, data, callbacks=[StepMonitor(config, sinks=[]), flips], dataset_sink_mode=False)
    assert len(flips.kept) > 0
    for kept, weight in zip(flips.kept, optimizer.parameters, strict=True):
        assert np.array_equal(kept, weight.asnumpy())


def test_without_the_tier_nothing_is_hashed(tmp_path):
    ms.set_context(mode=1)
    training = Training(tmp_path, tiers=("finite",))
    training.step(3)
    flip(training["blocks.0.up.weight"])
    training.step()
    assert training.monitor._training.state.seal is None
    assert training.found() == []


def test_only_a_step_that_is_watched_is_compared_and_only_once():
    weight = Parameter(np.ones(64, np.float32), name="w")
    state = OptimizerState(nn.SGD([weight], 0.1))
    seal = StateSeal(StateBlocks(state), state.parameters)
    seal.close(6, None)
    assert seal.open() is None
    seal.close(7, None)
    assert seal.open()[:3] == (7, {}, {})
    assert seal.open() is None
    seal.close(8, None)
    flip(weight)
    step, after, before, *_ = seal.open()
    assert (step, [name for name in after if after[name] != before[name]]) == (8, ["w"])


def test_each_block_has_a_hash_of_its_own():
    array = np.arange(3 * BLOCK // 4 - 5, dtype=np.float32)
    before = hashes_of_blocks(array)
    array[BLOCK // 4 + 1] += 1
    after = hashes_of_blocks(array)
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True]
