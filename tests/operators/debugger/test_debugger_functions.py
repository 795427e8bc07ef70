"""Functions with a gradient of their own, MindSpore's `_Function`, in a network that the debugger records."""

from contextlib import nullcontext

import mindspore as ms
import numpy as np
import pytest
from debugged_nets import dump_of, recording
from mindspore import Tensor, nn
from mindspore.common._grad_function import _Function

pytestmark = pytest.mark.usefixtures("clean")


class Square(_Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 * ctx.saved_tensors[0]


class Both(_Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor, x + factor

    @staticmethod
    def backward(ctx, first, second):
        return first * ctx.factor + second, None


class Applied(nn.Cell):
    def __init__(self, function, *others):
        super().__init__()
        self.function, self.others = function, others

    def construct(self, x):
        return self.function.apply(x, *self.others)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(4, 4, weight_init="ones", bias_init="zeros")
        self.square = Applied(Square)
        self.both = Applied(Both, 3.0)

    def construct(self, x):
        first, second = self.both(self.square(self.dense(x)))
        return first.sum() + 2 * second.sum()


def trained(record=None):
    net = Net()
    optimizer = nn.SGD(net.trainable_params(), 0.001)
    batch = Tensor(np.arange(8, dtype=np.float32).reshape(2, 4) / 8)
    with recording(net, **record) if record else nullcontext():
        loss, gradients = ms.value_and_grad(net, None, optimizer.parameters)(batch)
        optimizer(gradients)
    return float(loss.asnumpy()).hex(), [parameter.asnumpy().tobytes() for parameter in net.get_parameters()]


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_training_with_functions_of_their_own_gradient_is_recorded_and_bit_equal(level, tmp_path):
    assert trained({"folder": tmp_path, "task": "tensor", "level": level}) == trained()
    if level == "L1":
        return
    folder, data = tmp_path / "step0" / "rank0" / "dump_tensor_data", dump_of(tmp_path)[0]["data"]

    def arrays(entry, part):
        return [np.load(folder / each["data_name"]) for each in data[entry][part]]

    (made,) = arrays("Cell.dense.Dense.forward.0", "output")
    assert [each.max() for each in arrays("Cell.both.Applied.backward.0", "input")] == [1.0, 2.0]
    assert [each.max() for each in arrays("Cell.both.Applied.backward.0", "output")] == [5.0]
    np.testing.assert_array_equal(arrays("Cell.square.Applied.backward.0", "output")[0], 5.0 * 2 * made)
    np.testing.assert_array_equal(arrays("Cell.dense.Dense.backward.0", "input")[0], 5.0 * 2 * made)
