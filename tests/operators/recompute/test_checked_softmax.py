"""Softmaxes that are computed again in a training: the same numbers as without, and the layer that is wrong."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, trained
from mindspore import Tensor, nn
from mindspore.ops import operations as P  # noqa: N812
from struck_calls import strike
from test_checked_norm import scores

from asd import AnomalyDetected, Config
from asd.operators import Checksum, StepMonitor, install_checksum

pytestmark = pytest.mark.usefixtures("clean")


class Attention(nn.Cell):
    """Scores, a mask, softmax and the mean of the values, beside a softmax that a residual goes past."""

    def __init__(self):
        super().__init__()
        self.query, self.value = nn.Dense(8, 8), nn.Dense(8, 8)
        self.scores, self.context = P.BatchMatMul(transpose_b=True), P.BatchMatMul()
        self.softmax, self.gate = P.Softmax(), nn.Softmax()
        self.mask = Tensor(np.triu(np.full((3, 3), -np.inf), 1), ms.float32)

    def construct(self, x):
        x = x.reshape((2, 3, 8))
        shares = self.softmax(self.scores(self.query(x), x) + self.mask)
        y = self.context(shares, self.value(x)) + x
        return (y + self.gate(y) * y).square().mean()


def monitor_of(**plan):
    return StepMonitor(Config(enable=1), sinks=[], checksum=Checksum(**plan))


def test_a_training_is_the_same_with_and_without_checks_of_its_softmaxes_bit_for_bit(mode):
    losses, weights = trained(Attention(), steps=4)
    monitor = monitor_of(every=2)
    checked_losses, checked_weights = trained(Attention(), monitor, steps=4)
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)
    found = scores(monitor)
    assert {f"{place}.checksum{part}" for place in ("softmax", "gate") for part in ("", "_dx")} <= set(found)
    ours = [seen for name, seen in found.items() if name.startswith(("softmax", "gate"))]
    assert all(len(seen) == 2 and 0 < max(seen) < 1 for seen in ours), found
    assert all(0 <= max(seen) < 1 for seen in found.values()), found


class One(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense, self.gate = nn.Dense(8, 8), nn.Softmax()

    def construct(self, x):
        return (self.gate(self.dense(x)) * x).square().mean()


@pytest.mark.parametrize(("mode", "part"), [("graph", ""), ("pynative", "_dx")], indirect=["mode"])
def test_a_wrong_softmax_is_named_and_its_update_refused(mode, part):
    with pytest.raises(AnomalyDetected) as caught:
        trained(One(), monitor_of(every=1), 1, before=lambda net: strike_of_one(net.gate.softmax.checked.call, part))
    event = caught.value.event
    # A wrong output spoils its gradient too, and no operator tells the order of checks.
    names = ["gate.checksum_dx"] if part else ["gate.checksum", "gate.checksum_dx"]
    assert event.checkpoint in names
    assert (event.step, event.rule) == (1, "checksum")
    assert "the softmax" in event.reason
    assert event.refused
    assert event.value > 1


def strike_of_one(call, part):
    strike(call, part, 0.001, unary=True)


def test_another_axis_stays_unchecked():
    assert install_checksum(nn.Softmax(0)) == []
