"""Norms that are computed again in a training: the same numbers as without, and the layer whose norm is wrong."""

import numpy as np
import pytest
from checked_nets import assert_same_bits, fill, values
from mindspore import Parameter, Tensor, nn
from mindspore.ops import operations as P  # noqa: N812

from asd import Config
from asd.operators import Checksum, StepMonitor, kernel, slots

pytestmark = pytest.mark.usefixtures("clean")
BACKENDS = ["operators"] + (["kernel"] if kernel.library is not None else [])


@pytest.fixture(params=BACKENDS)
def backend(request):
    before = slots.table().backend
    slots.use_backend(request.param)
    yield request.param
    slots.use_backend(before)


class Block(nn.Cell):
    """Norms of every kind: in a residual, of channels, by hand, without a mean; the output is the loss."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(8, 8)
        self.norm = nn.LayerNorm((8,))
        self.grouped = nn.GroupNorm(2, 4)
        self.bare = P.LayerNorm(-1, -1, 1e-5)
        self.gamma = Parameter(Tensor(np.ones(8, np.float32)), name="gamma")
        self.beta = Parameter(Tensor(np.zeros(8, np.float32)), name="beta")

    def construct(self, x):
        x = x + self.norm(self.dense(x))
        y = self.grouped(x.reshape((3, 4, 2, 2))).reshape((6, 8))
        return (y + self.bare(x, self.gamma, self.beta)[0]).square().mean() + (y * x).mean()


def batch(seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal((6, 8)).astype(np.float32))


def trained(net, monitor=None, steps=3, before=None):
    optimizer = nn.Momentum(fill(net).trainable_params(), 1e-2, 0.9)
    step = nn.TrainOneStepCell(net, optimizer)
    if monitor is not None:
        monitor.attach(step, optimizer)
    if before is not None:
        before(net)
    losses = []
    for number in range(steps):
        loss = step(batch(number))
        if monitor is not None:
            monitor.step(loss)
        losses.append(loss.asnumpy().tobytes())
    return losses, values(step.get_parameters())


def monitor_of(**plan):
    return StepMonitor(Config(enable=1), sinks=[], checksum=Checksum(**plan))


def scores(monitor):
    return {name: [row[1] for row in rows] for name, rows in monitor.monitor.history.items() if ".checksum" in name}


@pytest.mark.parametrize("plan", [{"every": 1}, {"every": 3, "first_steps": 0}])
def test_a_training_is_the_same_with_and_without_checks_of_its_norms_bit_for_bit(mode, backend, plan):
    losses, weights = trained(Block(), steps=6)
    monitor = monitor_of(**plan)
    checked_losses, checked_weights = trained(Block(), monitor, steps=6)
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)
    found = scores(monitor)
    assert {f"{place}.checksum{part}" for place in ("norm", "grouped", "bare") for part in ("", "_dx", "_dw")} <= set(
        found
    )
    assert all(0 < max(seen) < 1 for seen in found.values())
    assert all(len(seen) == (6 if plan["every"] == 1 else 2) for seen in found.values())
