"""Compiled trainings of kinds that once failed, with all that is checked by default: no crash, and equal bits."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, fill, values
from mindspore import Tensor, nn, ops

from asd import Config, Level
from asd.operators import StepMonitor
from asd.operators.private import patches
from asd.operators.private.compiler import graph_compilers
from tests.support.tables import quick


class Square(nn.Cell):
    def __init__(self, *layers):
        super().__init__()
        self.net = nn.SequentialCell(*layers)

    def construct(self, x):
        return ops.mean(self.net(x) ** 2)


class Unrolled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(4, 8), nn.Dense(8, 1)

    def construct(self, x):
        hidden = ops.zeros((x.shape[0], 8), ms.float32)
        for _ in range(6):
            hidden = self.cell(x, hidden)
        return ops.mean(self.out(hidden) ** 2)


def rows(step):
    return np.random.default_rng(step).normal(size=(6, 4)).astype(np.float32)


KINDS = {  # how it is made, its batches, and whether their number of rows changes
    "words of any number": (
        lambda: Square(nn.Embedding(9, 8), nn.LayerNorm((8,)), nn.Dense(8, 1)),
        lambda step: np.random.default_rng(step).integers(0, 9, (6, 4)).astype(np.int32),
        True,
    ),
    "a recurrent cell that is unrolled": (Unrolled, rows, False),
    "sparse gradients": (
        lambda: Square(nn.EmbeddingLookup(9, 8), nn.LayerNorm((8,)), nn.Dense(8, 1)),
        lambda step: np.random.default_rng(step).integers(0, 9, (6, 4)).astype(np.int32),
        False,
    ),
}


def trained(kind, config=None, steps=16):
    make, batch, varies = KINDS[kind]
    net = fill(make())
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    cell = nn.TrainOneStepCell(net, optimizer).set_train()
    if varies:
        cell.set_inputs(Tensor(shape=[None, 4], dtype=ms.int32 if "words" in kind else ms.float32))
    monitor = StepMonitor(config, sinks=[]) if config is not None else None
    if monitor is not None:
        monitor.attach(cell, optimizer)
    losses, events = [], []
    for step in range(steps):
        loss = cell(Tensor(batch(step)[: 2 + step % 5 if varies else 6]))
        events += monitor.step(loss) if monitor is not None else []
        losses.append(loss.asnumpy())
    checks = monitor.monitor.status.checks if monitor is not None else 0
    return {"losses": np.array(losses), **values(cell.get_parameters())}, events, checks


def test_a_loss_of_sparse_labels_has_gradients_that_are_checked(graph, tmp_path):
    cell = nn.WithLossCell(nn.Dense(4, 4), nn.SoftmaxCrossEntropyWithLogits(sparse=True))
    optimizer = nn.Momentum(cell.trainable_params(), 0.1, 0.9)
    monitor = StepMonitor(Config(enable=1, run_dir=str(tmp_path)), sinks=[])
    monitor.attach(cell, optimizer)
    assert len(optimizer.asd_gate.sites) == 2


@pytest.mark.parametrize("kind", quick(1, list(KINDS)))
def test_a_compiled_training_of_a_rare_kind_is_checked_and_has_the_bits_of_one_without(kind, graph, tmp_path):
    found, events, checks = trained(kind, Config(enable=1, run_dir=str(tmp_path)))
    assert_same_bits(found, trained(kind)[0])
    assert [event.sentence() for event in events if event.level is Level.ERROR or event.kind == "problem"] == []
    assert checks > 16


class Penalty(nn.Cell):
    """As in a GAN: the loss is made of the gradient of a network, so its own gradient is a second derivative."""

    def __init__(self):
        super().__init__()
        self.net = nn.SequentialCell(nn.Dense(4, 8), nn.LayerNorm((8,)), nn.Tanh(), nn.Dense(8, 1))
        self.gradient = ops.GradOperation()

    def construct(self, x):
        return ops.mean((self.gradient(self.net)(x) - 1) ** 2)


def test_layers_that_do_not_compile_with_checks_are_trained_without_them(graph, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(KINDS, "a penalty", (Penalty, rows, False))
    found, events, checks = trained("a penalty", Config(enable=1, run_dir=str(tmp_path)))
    assert_same_bits(found, trained("a penalty")[0])
    assert checks > 16  # of the gradients of the weights
    assert [event for event in events if event.level is Level.ERROR] == []
    assert "can't compile this network" in caplog.text


def test_a_compilation_that_fails_at_random_is_made_again(graph, tmp_path, monkeypatch):
    patches.put_back()  # which networks of other tests may keep
    (_, kind), failures = graph_compilers(), [RuntimeError("framework's unexpected error")]

    def fails(*args, once=kind.compile):
        if failures:
            raise failures.pop()
        return once(*args)

    monkeypatch.setattr(kind, "compile", fails)
    optimizer = nn.Adam((net := fill(Square(nn.Dense(4, 8), nn.Dense(8, 1)))).trainable_params(), 1e-3)
    StepMonitor(Config(enable=1, run_dir=str(tmp_path)), sinks=[]).attach(net, optimizer)
    nn.TrainOneStepCell(net, optimizer)(Tensor(rows(0)))
    assert failures == []


def test_what_does_not_compile_without_checks_either_is_the_users_own_error_and_the_checks_stay(graph, tmp_path):
    net = fill(Square(nn.Dense(4, 8), nn.LayerNorm((8,)), nn.Dense(8, 1)))
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    cell = nn.TrainOneStepCell(net, optimizer).set_train()
    monitor = StepMonitor(Config(enable=1, run_dir=str(tmp_path)), sinks=[])
    monitor.attach(cell, optimizer)
    with pytest.raises(ValueError, match="MatMul|mat"):
        cell(Tensor(np.ones((6, 5), np.float32)))
    events = monitor.step(cell(Tensor(rows(0))))
    assert [event.reason for event in events if event.kind == "problem"] == []
    assert "net.1" in monitor.monitor.history
