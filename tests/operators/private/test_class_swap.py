"""A cell's class is given and taken by one way: any layer can leave, whatever was put on before and after it."""

import itertools

import mindspore as ms
import numpy as np
import pytest
from checked_nets import BOTH
from mindspore import Tensor, nn

from asd.operators.private.class_swap import put_on, stock_class, take_off

pytestmark = pytest.mark.usefixtures("clean")
X = Tensor(np.random.default_rng(1).normal(size=(2, 4, 3, 3)).astype(np.float32))


def layer(cell, number):
    class Layer(type(cell)):
        def construct(self, x):
            return super().construct(x) * number

    return put_on(cell, Layer)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_layers_leave_in_any_order_and_the_others_stay(order):
    cell = nn.ReLU()
    layers = [layer(cell, number) for number in (2, 3, 5)]
    here = {2, 3, 5}
    for place in order:
        assert cell(Tensor([1.0])).asnumpy() == np.prod(list(here))
        assert (type(cell).__name__, type(cell).__module__) == ("ReLU", nn.ReLU.__module__)
        assert stock_class(cell) is nn.ReLU
        take_off(cell, layers[place])
        take_off(cell, layers[place])
        here.remove((2, 3, 5)[place])
    assert type(cell) is nn.ReLU


@BOTH
def test_a_layer_that_left_from_between_two_others_is_not_compiled(mode):
    cell = nn.ReLU()
    layers = [layer(cell, number) for number in (2, 3, 5)]
    take_off(cell, layers[1])
    assert cell(Tensor([1.0])).asnumpy() == 10


class CompilesItself(nn.Cell):
    @ms.jit
    def construct(self, x):
        return -x


@BOTH
@pytest.mark.parametrize("jit", ["", "0"])
def test_each_layer_of_a_cell_that_compiles_itself_runs_once(mode, jit, monkeypatch):
    monkeypatch.setenv("MS_JIT", jit)
    cell = CompilesItself()
    layers = [layer(cell, number) for number in (2, 3, 5)]
    take_off(cell, layers[1])
    assert cell(Tensor([1.0])).asnumpy() == -10
