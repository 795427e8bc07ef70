"""Lookups of rows that are checked in a training: the same numbers as without, and the table that is wrong."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, trained
from mindspore import Parameter, Tensor, nn
from mindspore.ops import operations as P  # noqa: N812
from struck_calls import strike
from test_checked_norm import scores

from asd import AnomalyDetected, Config
from asd.operators import Checksum, GatherASD, StepMonitor, install_checksum
from asd.operators.table import slots

pytestmark = pytest.mark.usefixtures("clean")


class Net(nn.Cell):
    """A table that is read twice and multiplied with, and a lookup in an activation; the output is the loss."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 8)
        self.dense = nn.Dense(8, 8)
        self.rows = P.Gather()
        self.product = P.MatMul(transpose_b=True)

    def construct(self, x):
        ids = (x[:, :3].abs() * 2).astype(ms.int32) % 7
        y = self.dense(self.embedding(ids)) + self.embedding(ids // 2)
        y = self.product(y.reshape((-1, 8)), self.embedding.embedding_table)
        return (y * y).mean() + self.rows(y, ids[0], 0).sum() * 0.1 + self.rows(y, ids[0], 1).mean()


class One(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 8)

    def construct(self, x):
        return self.embedding((x.abs() * 2).astype(ms.int32) % 7).square().mean()


def monitor_of(**plan):
    return StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=Checksum(**plan))


def test_a_training_is_the_same_with_and_without_checks_of_its_lookups_bit_for_bit(mode):
    losses, weights = trained(Net(), steps=4)
    monitor = monitor_of(every=2)
    checked_losses, checked_weights = trained(Net(), monitor, steps=4)
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)
    found = scores(monitor)
    assert {f"{place}.checksum{part}" for place in ("embedding", "rows") for part in ("", "_dx")} <= set(found)
    assert all(len(seen) == 2 and 0 <= max(seen) < 1 for seen in found.values())


@pytest.mark.parametrize(("mode", "part"), [("graph", ""), ("pynative", "_dx")], indirect=["mode"])
def test_a_wrong_row_or_gradient_is_named_and_its_update_refused(mode, part):
    with pytest.raises(AnomalyDetected) as caught:
        trained(One(), monitor_of(every=1), 1, before=lambda net: strike(net.embedding.gather.checked.call, part, 0.01))
    event = caught.value.event
    assert (event.checkpoint, event.step, event.rule) == (f"embedding.checksum{part}", 1, "checksum")
    assert "looked up" in event.reason
    assert event.refused
    assert event.value > 1


def test_an_id_below_zero_says_nothing():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = nn.Embedding(7, 8)
    sites, plan = install_checksum(net), Checksum(every=1)
    plan.begin_step(1)
    net(Tensor([[-1, 2], [3, 3]], ms.int32)).asnumpy()
    plan.stop()
    assert not slots.table().read(sites)


def test_the_check_operator_of_a_gather_keeps_its_own_check(enabled, mode):
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.table = Parameter(Tensor(np.ones((7, 8), np.float32)), name="table")
            self.gather = GatherASD()

        def construct(self, x):
            return self.gather(self.table, (x.abs() * 2).astype(ms.int32) % 7, 0).square().mean()

    monitor = monitor_of(every=1)
    trained(Net(), monitor, steps=1)
    names = {name.removeprefix("network.") for name in monitor.monitor.history}
    assert names == {"gather", "gather.checksum", "gather.checksum_dx"}
