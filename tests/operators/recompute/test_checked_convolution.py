"""Convolutions that are computed again in a training: the same numbers as without, and the layer that is wrong."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, fill, trained
from mindspore import Parameter, Tensor, nn
from struck_calls import strike
from test_checked_norm import scores

from asd import AnomalyDetected, Config
from asd.operators import Checksum, StepMonitor, install_checksum

pytestmark = pytest.mark.usefixtures("clean")


class Net(nn.Cell):
    """Branches that read one value, a residual, and convolutions of all sorts; the output is the loss."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, pad_mode="same", has_bias=True)
        self.grouped = nn.Conv2d(4, 4, (3, 2), stride=(2, 1), pad_mode="pad", padding=(1, 2, 1, 0), group=2)
        self.wide = nn.Conv2d(4, 4, 3, stride=(2, 1), pad_mode="same", dilation=(1, 1))
        self.apart = nn.Conv2d(4, 3, 2, dilation=2, pad_mode="valid")

    def construct(self, x):
        x = x.reshape((2, 1, 4, 6))
        x = self.first(x)
        y = x[:, :, :2, :] + self.wide(x) + self.grouped(x)[:, :, :2, :1]
        return y.square().mean() + (self.apart(x) * 0.3).square().mean() + x.mean()


class One(nn.Cell):
    def __init__(self):
        super().__init__()
        self.scale = Parameter(Tensor(np.ones(1, np.float32)), name="scale")  # so that somebody needs dx
        self.wide = nn.Conv2d(2, 4, 3, stride=(2, 1), pad_mode="same")

    def construct(self, x):
        return self.wide(x.reshape((2, 2, 3, 4)) * self.scale).square().mean()


PLACES = ("first", "grouped", "wide", "apart")


def monitor_of(**plan):
    return StepMonitor(Config(protection="document", enable=1), sinks=[], checksum=Checksum(**plan))


def test_a_training_is_the_same_with_and_without_checks_of_its_convolutions_bit_for_bit(mode):
    losses, weights = trained(Net(), steps=4)
    monitor = monitor_of(every=2)
    checked_losses, checked_weights = trained(Net(), monitor, steps=4)
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)
    found = scores(monitor)
    expected = {f"{place}.checksum{part}" for place in PLACES for part in ("", "_dx", "_dw")}
    assert expected - set(found) <= {"first.checksum_dx"}  # nobody needs the gradient of the input
    assert all(len(seen) == 2 and 0 < max(seen) < 1 for seen in found.values())


@pytest.mark.parametrize(("mode", "part"), [("graph", ""), ("pynative", "_dx"), ("pynative", "_dw")], indirect=["mode"])
def test_a_wrong_convolution_is_named_and_its_update_refused(mode, part):
    with pytest.raises(AnomalyDetected) as caught:
        trained(One(), monitor_of(every=1), 1, before=lambda net: strike(net.wide.conv2d.checked.call, part, 0.05))
    event = caught.value.event
    assert (event.checkpoint, event.step, event.rule, event.feature) == (f"wide.checksum{part}", 1, "checksum", "score")
    assert "the convolution" in event.reason
    assert event.refused
    assert event.value > 1


def test_a_network_in_half_precision_keeps_its_bits(mode):
    """Without branches: in half precision a compiled graph may add gradients in other groups, see checksum.md."""

    class Chain(nn.Cell):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(2, 4, 3), nn.Conv2d(4, 3, 3, stride=2)

        def construct(self, x):
            return (
                self.second(self.first(x.reshape((2, 2, 3, 4)).astype(ms.float16))).astype(ms.float32).square().mean()
            )

    def made():
        return Chain().to_float(ms.float16)

    losses, weights = trained(made())
    monitor = monitor_of(every=1)
    checked_losses, checked_weights = trained(made(), monitor)
    assert checked_losses == losses
    assert_same_bits(checked_weights, weights)
    assert all(0 <= value < 1 for seen in scores(monitor).values() for value in seen)


def test_convolutions_are_installed_once_and_keep_their_names():
    net = fill(Net())
    names = [site.name for site in install_checksum(net)]
    assert names == [f"{place}.checksum{part}" for place in PLACES for part in ("", "_dx", "_dw")]
    assert [site.name for site in install_checksum(net)] == names
    assert net.first.conv2d.out_channel == 4


def test_a_format_that_is_not_known_stays_unchecked():
    ms.set_context(mode=ms.PYNATIVE_MODE)
    net = nn.Conv2d(1, 2, 3)
    net.conv2d.format = "NHWC"
    assert install_checksum(net) == []
    net(Tensor(np.ones((1, 1, 4, 4), np.float32)))
