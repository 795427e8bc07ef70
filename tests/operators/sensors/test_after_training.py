"""A network that was trained under detection prints and exports as one that was not."""

import mindspore as ms
import pytest
from checked_nets import SLOW, Decoder, fill, ids, one_step_cell, readings, targets
from mindspore import nn

from asd import Config
from asd.operators import StepMonitor, enable


def trained(how=""):
    if how == "enabled":
        enable()  # its layers are built with check operators
    net, monitor = fill(Decoder()), StepMonitor(Config(protection="document", enable=1), sinks=[])
    optimizer = nn.Momentum(net.trainable_params(), 1e-2, 0.9)
    cell = one_step_cell(net, optimizer)
    if how:
        monitor.attach(cell, optimizer)
    for number in (1, 2):
        cell(ids(number), targets(number)).asnumpy()
    return net, cell, monitor  # which `enable` would replace by its own, were it gone


def exported(net, name):
    ms.export(net, ids(3), targets(3), file_name=name, file_format="MINDIR")
    return nn.GraphCell(ms.load(f"{name}.mindir"))(ids(3), targets(3)).asnumpy().tobytes()


@pytest.mark.parametrize(
    ("how", "mode"), [("attached", "graph"), pytest.param("enabled", "pynative", marks=SLOW)], indirect=["mode"]
)
def test_it_prints_and_exports_as_one_without_and_is_checked_as_before(how, mode, enabled):
    bare, *_ = trained()
    net, cell, _monitor = trained(how)
    assert str(net) == str(bare)
    assert exported(net, how) == exported(bare, "bare")
    readings()
    cell(ids(4), targets(4)).asnumpy()
    assert len(readings()) == 4
