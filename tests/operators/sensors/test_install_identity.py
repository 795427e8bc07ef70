"""An installed check changes no bit of a training."""

import mindspore as ms
import pytest
from checked_nets import NETS, SLOW, assert_same_bits, fill, readings, train
from mindspore import nn

from asd.operators import install

pytestmark = pytest.mark.usefixtures("clean")


def trained(name, *, checked):
    make, make_input = NETS[name]
    net = fill(make())
    found = install(net).found if checked else []
    style = "one step cell" if ms.get_context("mode") == ms.GRAPH_MODE else "value_and_grad"
    result = train(net, nn.Adam(net.trainable_params(), 1e-2), style, make_input)
    assert sorted(readings()) == sorted(found)
    return result


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(("shared", "graph"), ("convolutions", "pynative"), ("containers", "pynative")),
        *(
            pytest.param(*each, marks=SLOW)
            for each in (("shared", "pynative"), ("convolutions", "graph"), ("containers", "graph"))
        ),
    ],
    indirect=["mode"],
)
def test_several_adam_steps_are_bit_equal_with_and_without_checks(name, mode):
    assert_same_bits(trained(name, checked=True), trained(name, checked=False))
