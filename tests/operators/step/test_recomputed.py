"""Outputs that a recomputed block computes twice: equal bits in a healthy training, and a fault of one of the two."""

import numpy as np
import pytest
from checked_nets import assert_same_bits, fill, values
from mindspore import Tensor, nn

from asd import Config
from asd.injection import Fault
from asd.operators import StepMonitor
from asd.operators.drill.inject import FaultInjector
from asd.operators.table.twins import Twins
from asd.rules.readings.reading import OUTPUT, RECOMPUTED, Reading

pytestmark = pytest.mark.usefixtures("clean")


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.act, self.down = nn.LayerNorm((8,)), nn.Dense(8, 16), nn.GELU(), nn.Dense(16, 8)

    def construct(self, x):
        return x + self.down(self.act(self.up(self.norm(x))))


class Net(nn.Cell):
    def __init__(self, *, recompute=True):
        super().__init__()
        self.blocks, self.head = nn.CellList([Block(), Block()]), nn.Dense(8, 1)
        for block in self.blocks:
            if recompute:
                block.recompute()

    def construct(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x).square().mean()


def train(steps, *, monitor=None, fault=None, evaluate=()):
    """Losses, weights at the end and the events of each step."""
    net = fill(Net())
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    step = nn.TrainOneStepCell(net, optimizer).set_train()
    injector = None
    if monitor is not None:
        monitor.attach(step, optimizer)
        step = monitor.watch_step(step)
        if fault is not None:
            injector = FaultInjector(fault)
            injector.attach(net)
    random, losses, events = np.random.default_rng(1), [], []
    for number in range(1, steps + 1):
        if injector is not None:
            injector.begin_step()
        batch = Tensor(random.standard_normal((6, 8)).astype(np.float32))
        loss = step(batch)
        told = monitor.step(loss) if monitor is not None else []
        if monitor is not None and monitor.outputs_again is not None:
            loss = monitor.outputs_again
        losses.append(float(loss.asnumpy()))
        events.append(told)
        for _ in range(2 if number in evaluate else 0):
            net(Tensor(random.standard_normal((6, 8)).astype(np.float32)))
    return losses, values(optimizer.parameters), events


def monitor_of():
    return StepMonitor(Config(enable=1, on_anomaly="skip"), sinks=[])


def recomputed(monitor):
    return {each.checkpoint: each.max_abs for each in monitor.monitor.readings if each.kind == RECOMPUTED}


def struck_once(where, pattern, step):
    """A fault that strikes the first of the calls of a step alone."""
    for seed in range(1000):
        fault = Fault.parse(f"output:{where}:{pattern}:step={step}:seed={seed}:chance=0.3")
        if [fault.of_call(call) is not None for call in range(1, 7)] == [True] + [False] * 5:
            return fault
    raise AssertionError("no seed does")


def test_a_healthy_training_keeps_its_bits_and_each_output_comes_twice(mode):
    losses, weights, _ = train(8)
    monitor = monitor_of()
    ours, our_weights, events = train(8, monitor=monitor)
    assert ours == losses
    assert_same_bits(our_weights, weights)
    assert events == [[]] * 8
    found = recomputed(monitor)
    assert {f"blocks.{block}.{layer}.forward.recomputed" for block in (0, 1) for layer in ("norm", "up")} <= set(found)
    assert set(found.values()) == {0.0}
    assert "head.forward.recomputed" not in found
    said = monitor.monitor.protections.on["recomputed"]
    assert said == f"{len(found)} outputs, compared with what recomputing them gives"


def test_one_bit_in_one_of_the_two_is_named_refused_and_made_again(mode):
    losses, weights, _ = train(9)
    monitor = monitor_of()
    ours, our_weights, events = train(9, monitor=monitor, fault=struck_once("blocks.0.norm", "low_bit=1", 7))
    assert [bool(each) for each in events] == [number == 7 for number in range(1, 10)]
    first = events[6][0]
    assert (first.kind, first.checkpoint, first.rule, first.refused) == (
        "anomaly", "blocks.0.up.forward.recomputed", "checksum", True,
    )  # fmt: skip
    assert "not bit for bit what recomputing it" in first.reason
    assert [each.verdict for each in events[6] if each.kind == "replay"] == ["transient"]
    assert ours == losses
    assert_same_bits(our_weights, weights)


def test_an_evaluation_between_two_steps_accuses_nobody(mode):
    monitor = monitor_of()
    *_, events = train(10, monitor=monitor, evaluate=(6, 8))
    assert events == [[]] * 10


def reading(calls):
    return Reading("a.forward", 1.0, 1.0, 0, calls, kind=OUTPUT)


def test_what_never_had_a_twin_is_not_judged():
    twins = Twins()
    found = [twins.take(reading(2), 7, hashed=True) for _ in range(10)]
    assert found == [None] * 10
    assert twins.pairs == 0


def test_what_had_one_in_four_steps_needs_one_later():
    twins = Twins()
    assert [twins.take(reading(4), 0, hashed=True) for _ in range(5)] == [None] * 5
    assert twins.pairs == 4
    assert twins.take(reading(4), 0, hashed=False) is None
    assert twins.take(reading(2), 9, hashed=True) is None  # other calls than those that were learned
    assert [twins.take(reading(4), bits, hashed=True).max_abs for bits in (0, 9)] == [0.0, 2.0]
