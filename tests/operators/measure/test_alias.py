"""Cells with a backward pass of their own that change nothing must not return what they were given in PyNative."""

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops

from asd.operators.measure.tap import alias, make_tap
from asd.operators.table import slots
from asd.operators.table.site import Site

pytestmark = pytest.mark.usefixtures("clean")


def new_site(name) -> Site:
    return slots.table().new_site(name)


def assert_other_objects_with_the_same_values(outputs, inputs):
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert len({id(output) for output in outputs}) == len(outputs)
    assert not {id(output) for output in outputs} & {id(x) for x in inputs}
    assert {output.data_ptr() for output in outputs} <= {x.data_ptr() for x in inputs}


def operands():
    return [Tensor(np.full(shape, 2.0, np.float32)) * 1 for shape in ((3, 4), (4,), (4,), (3, 4))]


def test_an_alias_is_another_tensor_on_the_same_memory():
    x = operands()[0]
    assert_other_objects_with_the_same_values(alias(x), [x])


def test_a_tap_does_not_return_their_input():
    x = operands()[0]
    tap = make_tap(new_site("tap"))
    assert_other_objects_with_the_same_values(tap.look.construct(x, *tap.slots()), [x])


class Streams(nn.Cell):
    """Each weight has operators in the queue when a tap is put on what they have read."""

    def __init__(self, tap, length=10):
        super().__init__()
        self.tap = tap
        self.weights = ms.ParameterTuple([Parameter(np.ones(4, np.float32), name=f"w{i}") for i in range(length)])

    def construct(self, x):
        loss = 0.0
        for weight in self.weights:
            scaled = x * weight
            queued = scaled * weight * 1.0
            loss = loss + (queued + self.tap(scaled)).square().mean() + (queued * scaled).mean()
        return loss


def gradients_of(tap):
    net = Streams(tap)
    step = ms.value_and_grad(net, None, net.weights)
    x = Tensor(np.arange(24, dtype=np.float32).reshape(6, 4) / 24)
    return lambda: [gradient.asnumpy().tobytes() for gradient in step(x)[1]]


def test_operators_that_wait_in_a_queue_keep_their_gradients_beside_a_tap():
    with_tap, (expected, *_) = gradients_of(make_tap(new_site("tap"))), (gradients_of(ops.identity)(),)
    assert all(with_tap() == expected for _ in range(12))
