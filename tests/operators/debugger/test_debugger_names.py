"""Calls are named and numbered as msprobe 26.2 names and numbers them: the lists were written down from its dump."""

import mindspore as ms
import pytest
from debugged_nets import batches, dump_of, recording
from mindspore import nn, ops
from mindspore.ops import operations as P  # noqa: N812

pytestmark = pytest.mark.usefixtures("clean")


class Flat(nn.Cell):
    def __init__(self):
        super().__init__()
        self.reshape_flat, self.reshape, self.shape = P.Reshape(), P.Reshape(), P.Shape()
        self.norm = nn.LayerNorm((8,))

    def construct(self, x):
        rows, columns = self.shape(x)
        flat = self.reshape_flat(x, (rows * columns,))
        flat = self.reshape_flat(flat, (rows * columns,))
        return self.norm(self.reshape(flat, (rows, columns)))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.one, self.two = Flat(), Flat()

    def construct(self, x):
        x = self.two(self.one(x))
        rows = ops.shape(x)[0]
        half = x.to(ms.float16).astype(ms.float32)
        return ops.reshape(half, (rows, 8)).mean()


COMPUTED = {
    *(f"Primitive.reshape_flat.Reshape.{number}.forward" for number in range(4)),
    *(f"Primitive.reshape.Reshape.{number}.forward" for number in range(2)),
    *(f"Primitive.layer_norm.LayerNorm.{number}.forward" for number in range(2)),
    *(f"Tensor.to.{number}.forward" for number in range(6)),  # two of either norm are of its gamma and beta
    "Functional.reshape.0.forward",
    "Tensor.mean.0.forward",
}
SHAPES = {"Primitive.shape.Shape.0.forward", "Primitive.shape.Shape.1.forward", "Functional.shape.0.forward"}


def test_operators_are_numbered_by_attribute_and_class_and_shapes_are_calls(tmp_path):
    net = Net()
    step = ms.value_and_grad(net, None, net.trainable_params())
    with recording(net, tmp_path, level="L1"):
        step(batches(1)[0])[0].asnumpy()
    data = dump_of(tmp_path)[0]["data"]
    assert {name for name in data if name.endswith(".forward")} == COMPUTED | SHAPES
    assert data["Tensor.to.4.forward"]["input_args"][1] == {"type": "mindspore.dtype", "value": "Float16"}
    assert data["Tensor.to.5.forward"]["output"][0]["dtype"] == "Float32"
    assert data["Primitive.shape.Shape.0.forward"]["output"] == [
        {"type": "int", "value": 4},
        {"type": "int", "value": 8},
    ]
