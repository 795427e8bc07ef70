"""An installed check changes no bit of a training."""

from functools import cache

import pytest
from checked_nets import NETS, assert_same_bits, fill, readings, train
from mindspore import nn

from asd.operators import install

pytestmark = pytest.mark.usefixtures("clean")


def trained(name, style, *, checked):
    make, make_input = NETS[name]
    net = fill(make())
    found = install(net).found if checked else []
    result = train(net, nn.Adam(net.trainable_params(), 1e-2), style, make_input)
    assert sorted(readings()) == sorted(found)
    return result


@cache
def unchecked(name, style, mode):
    return trained(name, style, checked=False)


@pytest.mark.parametrize(
    ("name", "mode"),
    [*((name, "graph") for name in ("convolutions", "containers", "shared")), *((name, "pynative") for name in NETS)],
    indirect=["mode"],
)
def test_several_adam_steps_are_bit_equal_with_and_without_checks(name, mode):
    style = {"graph": "one step cell", "pynative": "value_and_grad"}[mode]
    ours = trained(name, style, checked=True)
    assert_same_bits(ours, unchecked(name, style, mode))


@pytest.mark.parametrize("style", ["jitted step", "jitted forward", "one step cell"])
def test_a_pynative_training_with_compiled_parts_is_bit_equal_with_and_without_checks(style):
    ours = trained("decoder", style, checked=True)
    assert_same_bits(ours, unchecked("decoder", style, "pynative"))
