"""The detectors in a training: what is checked, what it changes, and what a fault in each place is called."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import Decoder, assert_same_bits, document, fill, flip, ids, one_step_cell, state_of, targets
from mindspore import Parameter, Tensor, nn, ops

from asd import Level
from asd.operators import StepMonitor
from asd.operators.ranks import memory_sums

pytestmark = pytest.mark.usefixtures("clean")


class Training:
    """A decoder that is trained by Adam, with the detectors of `config` or unchecked."""

    def __init__(self, config=None, make=nn.Adam):
        self.net = fill(Decoder())
        self.optimizer = make(self.net.trainable_params(), 1e-3)
        self.monitor = None
        if config is not None:
            self.monitor = StepMonitor(config, sinks=[])
            self.monitor.attach(self.net, self.optimizer)
        self._step = one_step_cell(self.net, self.optimizer)
        if self.monitor is not None:
            self._step = self.monitor.watch_step(self._step)
        self.steps = 0

    def step(self):
        loss = self._step(ids(self.steps), targets(self.steps))
        self.steps += 1
        loss.asnumpy()
        return self.monitor.step(loss) if self.monitor is not None else []

    def values(self):
        return state_of(self.net, self.optimizer)


class TwoOptimizers(Training):
    """The same by two Adams, of half of the weights each, in a loop of its own."""

    def __init__(self, config=None):
        self.net, self.monitor, self.steps = fill(Decoder()), None, 0
        weights = self.net.trainable_params()
        halves = weights[: len(weights) // 2], weights[len(weights) // 2 :]
        self.optimizers = [nn.Adam(half, 1e-3) for half in halves]
        grad = ms.value_and_grad(self.net, None, [*halves[0], *halves[1]])

        def step(*inputs):
            loss, found = grad(*inputs)
            for optimizer, own in zip(self.optimizers, (found[: len(halves[0])], found[len(halves[0]) :]), strict=True):
                optimizer(own)
            return loss

        self._step = step
        if config is not None:
            self.monitor = StepMonitor(config, sinks=[])
            self.monitor.attach(self.net, self.optimizers)
            self._step = self.monitor.watch_step(step)

    def values(self):
        return {f"{i}.{name}": each for i in (0, 1) for name, each in state_of(self.net, self.optimizers[i]).items()}


def adaptive(tmp_path, **more):
    return document(rule="adaptive", detectors=("state",), run_dir=str(tmp_path), **more)


class WrongAdam(nn.Adam):
    """An Adam whose updates also add `wrong` to every weight."""

    def __init__(self, weights, rate):
        super().__init__(weights, rate)
        self.wrong, self.add = Parameter(Tensor(0.0, ms.float32), name="wrong"), ops.AssignAdd()

    def construct(self, gradients):
        done = super().construct(gradients)
        for each in self.parameters:
            done = ops.depend(done, self.add(each, self.wrong * ops.ones_like(ops.depend(each, done))))
        return done


def test_an_update_that_changes_weights_by_more_than_it_can_is_found_in_its_step(mode, tmp_path):
    training = Training(adaptive(tmp_path, on_anomaly="log"), WrongAdam)
    for _ in range(20):
        training.optimizer.wrong.set_data(Tensor(0.001, ms.float32))  # as far as an Adam can go
        assert [event for event in training.step() if event.level is Level.ERROR] == []
    training.optimizer.wrong.set_data(Tensor(0.03, ms.float32))
    (event,) = training.step()
    assert (event.step, event.feature, event.level) == (21, "max", Level.ERROR)
    assert event.checkpoint in {f"update.{weight.name}" for weight in training.net.trainable_params()}
    training.optimizer.wrong.set_data(Tensor(0.0, ms.float32))
    moment = training.optimizer.moment2[3]
    moment.set_data(Tensor(np.full(moment.shape, 1e6, np.float32)))
    found = [each for _ in range(11) for each in training.step() if each.level is Level.ERROR]
    assert [(each.step, each.checkpoint, each.refused) for each in found] == [(32, moment.name, False)]


@pytest.mark.parametrize(
    ("of", "train", "mode"),
    [
        *((of, Training, mode) for of in ("", "moment2.") for mode in ("graph", "pynative")),  # with a weight gradients
        ("", TwoOptimizers, "pynative"),  # are computed, and have to be once more
    ],
    indirect=["mode"],
)
def test_bits_that_flip_between_two_updates_are_put_back_which_is_told(of, train, mode, tmp_path, monkeypatch):
    monkeypatch.setattr(memory_sums, "_PAUSE", 1)  # each step has its turn
    plain, struck, name = train(), train(adaptive(tmp_path, confirm=0.01)), f"{of}blocks.0.up.weight"
    events, at = [], 0
    for step in range(1, 26):
        plain.step()
        events += struck.step()
        memory = struck.monitor._training.state._memory
        due = {memory._tensors[i].name: memory._tensors[i] for block in memory._blocks[memory._turn] for i in block}
        if memory._sealed is not None and not at and step > 5 and name in due:
            at = step
            flip(due[name], 7, 1 << 30)
    (event,) = [each for each in events if each.rule == "memory"]
    assert (event.step, event.level, event.checkpoint) == (at + 1, Level.ERROR, name)
    assert {each.healed for each in events} == {True}
    assert_same_bits(struck.values(), plain.values())
    status, tainted = struck.monitor.monitor.status, struck.monitor._training.health.tainted_from
    assert (event.refused, status.refused, tainted) == (False, 0, 0)


@pytest.mark.parametrize("on_anomaly", ["skip", "log"])
def test_every_kind_is_checked_and_nothing_is_changed_and_a_later_training_may_refuse(on_anomaly, mode, tmp_path):
    plain, logged = Training(), Training(adaptive(tmp_path, on_anomaly=on_anomaly))
    for _ in range(8):
        plain.step()
        assert [event for event in logged.step() if event.level is Level.ERROR] == []
    assert_same_bits(logged.values(), plain.values())
    kinds = {reading.checkpoint: reading.kind for reading in logged.monitor.monitor.readings}
    names = {weight.name for weight in logged.net.trainable_params()}
    assert kinds["blocks.0.norm"] == "B"
    assert {name for name, kind in kinds.items() if kind == "W"} == names
    weight = logged.net.blocks[0].up.weight
    logged.monitor.close()
    again = StepMonitor(adaptive(tmp_path), sinks=[])
    again.attach(logged.net, logged.optimizer)
    step = one_step_cell(logged.net, logged.optimizer)
    again.step(step(ids(0), targets(0)))
    watched = [each.checkpoint for each in again.monitor.readings if each.kind == "W"]
    assert sorted(watched) == sorted(names)
    infinite = weight.asnumpy().copy()
    infinite[0, 0] = np.inf
    weight.set_data(Tensor(infinite))
    before = logged.values()
    assert any(event.refused for event in again.step(step(ids(1), targets(1))))
    assert_same_bits(logged.values(), before)
