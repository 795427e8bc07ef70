"""What a program writes into Parameters around its steps is kept whatever is made twice, and nobody is accused."""

import functools
import random

import mindspore as ms
import numpy as np
import pytest
from checked_nets import Losses, assert_same_bits, batch, fill, state_of
from mindspore import Parameter, Tensor, amp, nn, ops
from mindspore.train import Callback, Model

from asd import Config
from asd.operators import StepMonitor
from asd.operators.rerun import audit
from asd.operators.rerun.repeatable_step import RepeatableStep
from tests.support.tables import quick

pytestmark = pytest.mark.usefixtures("clean")
EPOCHS, ROWS = 3, 8
MOMENTS, BETWEEN = ["step_begin", "step_end", "epoch_begin", "epoch_end"], "between calls"
MODES = ("graph", "pynative")
LOUD = {8: 3e2, 17: 1e5}  # in these steps the loss is so many times larger
HUGE = {6: 1e9}


class Net(nn.Cell):
    """Holds one Parameter of each kind that programs write, and each counts."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Dense(8, 8), nn.Dense(8, 4)
        self.means, self.norm = nn.BatchNorm1d(8), nn.LayerNorm((8,))
        self.share, self.average, self.queue = (
            Parameter(np.full(shape, 1.5, np.float32), name=name, requires_grad=False)
            for name, shape in (("share", ()), ("average", (8, 4)), ("queue", (3, 4)))
        )
        self.count = Parameter(Tensor(0, ms.int32), name="count", requires_grad=False)

    def construct(self, x):
        ops.assign_add(self.count, Tensor(1, ms.int32))
        hidden = self.norm(self.means(self.first(x)))
        near = ops.square(self.last(hidden) - self.queue.mean(0)).mean() * self.share * (1 + self.count / 64)
        return near + ops.square(ops.matmul(hidden, self.average)).mean()


def by_item(parameter, value):
    parameter[0] = value


def load(net, optimizer):
    weights, moment = net.trainable_params()[:2], optimizer.moment1[0]
    ms.load_param_into_net(net, {each.name: Parameter(each.asnumpy() * np.float32(0.9)) for each in weights})
    ms.load_param_into_net(optimizer, {moment.name: Parameter(moment.asnumpy() * 2)})


def flip(weight):
    weight.requires_grad = not weight.requires_grad


WRITERS = [
    lambda net, _, turn: net.share.set_data(Tensor(1.0 + turn, ms.float32)),
    lambda net, _, turn: ops.assign(net.share, Tensor(2.0 + turn, ms.float32)),
    lambda net, _, turn: net.average.copy_(net.last.weight.value().T * turn),
    lambda net, _, turn: by_item(net.queue, Tensor(np.full(4, turn / 8, np.float32))),
    lambda net, *_: ops.assign(net.count, Tensor(3, ms.int32)),
    lambda net, *_: net.means.moving_mean.copy_(net.means.moving_mean.value() * 2),
    lambda net, *_: ops.assign(net.first.weight, net.first.weight.value() * 0.9),
    lambda net, *_: by_item(net.last.bias, Tensor(0.25, ms.float32)),
    lambda net, optimizer, _: load(net, optimizer),
    lambda net, *_: flip(net.first.bias),
    lambda _, optimizer, turn: optimizer.learning_rate.set_data(Tensor(1e-3 * (turn + 1), ms.float32)),
    lambda _, optimizer, turn: ops.assign(optimizer.moment2[1], optimizer.moment2[1].value() * turn),
    lambda _, optimizer, turn: optimizer.global_step.copy_(Tensor([turn + 9], ms.int32)),
]


class Program(Callback):
    """Calls the writers in turn, one at each step or all of them at an epoch; the weight of the loss last."""

    def __init__(self, net, optimizer, moment, loud):
        super().__init__()
        self.net, self.optimizer, self.turns, self.loud = net, optimizer, 0, loud
        self.at_once = len(WRITERS) if "epoch" in moment else 1
        setattr(self, f"on_train_{moment}", self.write)

    def write(self, *_):
        for _ in range(self.at_once):
            WRITERS[self.turns % len(WRITERS)](self.net, self.optimizer, 1 + self.turns % 3)
            self.turns += 1
        if self.turns in self.loud or self.turns - 1 in self.loud:
            ops.assign(self.net.share, Tensor(self.loud.get(self.turns, 1.0), ms.float32))


class Training:
    """Three epochs of eight steps, by `Model.train` or in a loop of one's own; without a config it is not watched."""

    def __init__(self, moment, config=None, loud=LOUD):
        net = fill(Net())
        optimizer = nn.Adam(net.trainable_params(), 1e-3)
        self.events, self.losses = [], Losses()
        program, scaler = Program(net, optimizer, moment, loud), None
        if moment == BETWEEN and ms.get_context("mode") == ms.PYNATIVE_MODE:
            scaler = amp.DynamicLossScaler(scale_value=2.0**4, scale_factor=2, scale_window=3)
        monitor = config and StepMonitor(config, sinks=[self.events.append], loss_scale=scaler)
        if moment == BETWEEN:
            self.loop(net, optimizer, monitor, program, scaler)
        else:
            cell = nn.TrainOneStepCell(net, optimizer)
            rows = ms.dataset.GeneratorDataset([(batch(i).asnumpy(),) for i in range(ROWS)], ["x"], shuffle=False)
            if monitor is not None:
                monitor.watch_step(cell, audit=True)
            ours = [each for each in [monitor] if each is not None]
            # Before the monitor where a step ends and behind it where one begins: next to the step itself.
            ours = [program, *ours] if moment.endswith("end") else [*ours, program]
            Model(cell).train(EPOCHS, rows, callbacks=[*ours, self.losses], dataset_sink_mode=False)
        self.state = {**state_of(net, optimizer), "losses": np.array(self.losses.bits)}
        self.protections = monitor and monitor.monitor.protections

    def loop(self, net, optimizer, monitor, program, scaler):
        """With a loss scaler it is a function, and the program sets the scale between the step and its verdict."""

        def function(x):
            counts["steps"] += 1
            noise = np.random.normal(1, 0.1, (1, 8)) * random.uniform(0.9, 1.1)  # noqa: NPY002 - what steps draw from
            loss, found = gradients(x * Tensor(noise.astype(np.float32)))
            optimizer(scaler.unscale(found))
            scaler.adjust(Tensor(True))
            return loss

        counts, step = {"steps": 0}, nn.TrainOneStepCell(net, optimizer) if scaler is None else function
        np.random.seed(3)  # noqa: NPY002
        random.seed(3)
        if monitor is not None:
            monitor.attach(net if scaler else step, optimizer)
            step = monitor.watch_step(step, counts.copy, counts.update, audit=True)
        gradients = ms.value_and_grad(lambda x: scaler.scale(net(x)), None, optimizer.parameters)
        for i in range(EPOCHS * ROWS):
            program.write()
            loss = step(batch(i % ROWS))
            self.losses.bits.append(loss.asnumpy().tobytes())
            if scaler is not None and i % 4 == 0:
                ops.assign(scaler.scale_value, scaler.scale_value * 0.5)
            if monitor is not None:
                monitor.step(loss)
        self.losses.bits.append(repr((counts, np.random.random(), random.random())).encode())  # noqa: NPY002


@functools.cache
def plain(_mode, moment):
    """What the training comes to without a monitor."""
    return Training(moment).state


def settings(**more):
    return Config(protection="document", **{"enable": 1, "on_anomaly": "skip", "replay": False, **more})


def count(monkeypatch, name):
    """The calls of a method of `RepeatableStep`, as a list."""
    calls, method = [], getattr(RepeatableStep, name)
    monkeypatch.setattr(RepeatableStep, name, lambda *args: calls.append(1) or method(*args))
    return calls


@pytest.mark.parametrize(
    ("mode", "moment", "on_anomaly"),
    quick(
        3,
        [
            *(("graph", "step_begin", "skip"), ("graph", "step_end", "stop"), ("pynative", BETWEEN, "skip")),
            *((mode, moment, "skip") for mode in MODES for moment in MOMENTS),
            *((mode, BETWEEN, action) for mode in MODES for action in ("skip", "stop", "log")),
        ],
    ),
    indirect=["mode"],
)
def test_what_a_program_writes_is_kept_and_nobody_is_accused(mode, moment, on_anomaly, monkeypatch):
    monkeypatch.setattr(audit, "EVERY", 4)
    monkeypatch.setattr(audit, "FIRST", {"CPU": 3})
    looks, audits = count(monkeypatch, "rerun_for_good"), count(monkeypatch, "rerun_discarding")
    refuses, looks_twice = on_anomaly != "log", on_anomaly != "log" and not moment.startswith("epoch")
    rule = {"rule": "adaptive", "confirm": 0.01} if looks_twice else {}
    watched = Training(moment, settings(on_anomaly=on_anomaly, replay=refuses, **rule))
    assert [event.reason for event in watched.events if event.level.name != "WARNING"] == []
    assert_same_bits(watched.state, plain(mode, moment))
    assert (len(looks) >= len(LOUD)) if looks_twice else not looks
    assert len(audits) == EPOCHS * ROWS // 4 * refuses
    assert ("alike bit for bit" in watched.protections.on.get("audit", "")) is refuses
    assert watched.protections.missing.keys() <= {"probe"}  # products of bfloat16, which a CPU lacks


@pytest.mark.parametrize(
    ("mode", "moment"),
    quick(1, [("graph", "step_begin"), ("graph", "step_end"), ("pynative", "step_end"), ("pynative", BETWEEN)]),
    indirect=["mode"],
)
def test_a_replay_changes_nothing_that_a_program_wrote_and_does_not_take_it_for_a_fault(mode, moment, monkeypatch):
    runs = count(monkeypatch, "rerun_discarding")
    replayed = Training(moment, settings(replay=True), HUGE)
    left = Training(moment, settings(), HUGE)
    assert_same_bits(replayed.state, left.state)
    verdicts = [(event.verdict, event.reason) for event in replayed.events if event.kind == "replay"]
    assert {verdict for verdict, _ in verdicts} == {"undetermined"}
    assert len(runs) == (0 if moment == "step_end" else 1)
    assert not (moment == "step_end" and "has written" not in verdicts[0][1])
