"""The network that both tools dump: operators that are attributes, functions, methods of tensors, shapes, two types."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops
from mindspore.ops import operations as P  # noqa: N812


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(8, 8, weight_init="ones", bias_init="zeros")
        self.reshape_flat, self.reshape, self.shape, self.mul = P.Reshape(), P.Reshape(), P.Shape(), P.Mul()

    def construct(self, x):
        rows, columns = self.shape(x)
        flat = self.reshape_flat(self.dense(x), (rows * columns,))
        return self.mul(self.reshape(flat, (rows, columns)), x) * 0.1


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.one, self.two = Block(), Block()
        self.head = nn.Dense(8, 1, weight_init="ones", bias_init="zeros")

    def construct(self, x):
        x = self.two(ops.tanh(self.one(x)) * 1.5)  # to an input of the network msprobe makes gradients nobody needs
        half = x.to(ms.float16).astype(ms.float32)
        half = mint.add(ops.reshape(half, ops.shape(x)), x)
        return self.head(half).mean()


def made():
    """A step of the training, and the network."""
    net = Net()
    step = nn.TrainOneStepCell(net, nn.SGD(net.trainable_params(), 0.05))
    batch = Tensor(np.random.default_rng(5).standard_normal((4, 8)).astype(np.float32))
    return net, lambda: step(batch).asnumpy()
