"""Small networks with norms and embeddings, ways to train them, and the truth about their gradients."""

import contextlib
import ctypes
from functools import cache
from types import SimpleNamespace
from unittest.mock import MagicMock
from zlib import crc32

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn, ops
from mindspore.train import Callback, Model
from mindspore.train import model as model_module
from mindspore.train.callback import _CallbackManager, _InternalCallbackParam
from mindspore.train.dataset_helper import _DataWrapper

from asd import Config
from asd.operators import disable, enable
from asd.operators.gate.slots import table
from asd.operators.ranks.weights import hashes_of

HIDDEN, VOCABULARY = 8, 13
SLOW = pytest.mark.slow
BOTH = pytest.mark.parametrize("mode", ["graph", "pynative"], indirect=True)
GRAPH = pytest.mark.parametrize("mode", ["graph", pytest.param("pynative", marks=SLOW)], indirect=True)
"""In one mode for `make test`, in the other one too for `make test-slow`."""


@contextlib.contextmanager
def with_check_operators():
    """Layers that are built inside have check operators."""
    enable()
    yield
    disable()


def ids(seed=0, batch=2, length=5):
    return Tensor(np.random.default_rng(seed).integers(0, VOCABULARY, (batch, length)), ms.int32)


def targets(seed=0, batch=2, length=5):
    return Tensor(np.random.default_rng(seed + 1000).normal(size=(batch, length, HIDDEN)).astype(np.float32))


def images(seed=0, batch=2):
    return Tensor(np.random.default_rng(seed).normal(size=(batch, 3, 6, 6)).astype(np.float32))


def fill(net, seed=5):
    """Every float weight, gammas and betas too, from a generator of its name: equal nets get equal weights."""
    for parameter in net.get_parameters():
        if parameter.dtype in (ms.float32, ms.float16) and "moving" not in parameter.name:
            generator = np.random.default_rng([seed, crc32(parameter.name.encode())])
            value = generator.normal(0.2, 0.3, parameter.shape).astype(np.float32)
            parameter.set_data(Tensor(value).astype(parameter.dtype))
    net.set_train()
    return net


def values(parameters):
    return {parameter.name: parameter.asnumpy().copy() for parameter in parameters}


def flip(tensor, at, bits):
    """Changes bits of a number where it lies, as broken memory does."""
    hashes_of([tensor])  # waits for what is written
    kind = ctypes.c_uint16 if tensor.itemsize == 2 else ctypes.c_uint32
    kind.from_address(tensor._data_ptr() + tensor.itemsize * at).value ^= bits


def document(**more):
    """The document's rule, or another, with nothing but what it needs."""
    return Config(protection="document", **{"enable": 1, "on_anomaly": "skip", **more})


def state_of(net, optimizer):
    return {**values(net.get_parameters()), **values(optimizer.get_parameters())}


def assert_same_bits(ours, theirs):
    assert list(ours) == list(theirs)
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype, name
        assert value.tobytes() == theirs[name].tobytes(), name


def dataset(numbers, bad=(), factor=1e6):
    """The batches of these numbers, of which those in `bad` carry a far too large target."""
    rows = [(ids(i).asnumpy(), targets(i).asnumpy() * np.float32(factor if i in bad else 1)) for i in numbers]
    return ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False)


def train_model(net, optimizer, data, *callbacks):
    """By MindSpore's `Model`."""
    Model(net, optimizer=optimizer).train(1, data, callbacks=[*callbacks], dataset_sink_mode=False)


class Queue(nn.Cell):
    """Does what `GetNext` does on a device: each run of a graph gets the next batch."""

    def __init__(self, rows):
        super().__init__(auto_prefix=False)
        self.at = Parameter(Tensor([0], ms.int32), name="queue", requires_grad=False)
        self.one, self.columns = Tensor([1], ms.int32), [Tensor(np.stack(column)) for column in zip(*rows, strict=True)]

    def construct(self):
        at = ops.assign_add(self.at, self.one) - self.one
        return tuple([ops.gather(column, at, 0)[0] for column in self.columns])


class Fetching(_DataWrapper):
    """Runs its graph several times a call, as MindSpore does on a device."""

    def __call__(self, *args):
        for _ in range(self.steps):
            outputs = super().__call__(*args)
        return outputs


def train_sunk(net, optimizer, data, *callbacks, steps=1, cell=None):
    """Trains by MindSpore's loop and cell for sunk data, with a queue in place of the device's; `steps` a call.

    The training cell is `cell` if given, else MindSpore's.
    """
    rows, model = list(data.create_tuple_iterator(output_numpy=True)), Model(net, optimizer=optimizer)
    model._train_network = model._train_network if cell is None else cell
    cell = Fetching(model._train_network, [ms.int32, ms.float32], [list(each.shape) for each in rows[0]], "")
    cell.get_next, cell.steps = Queue(rows), steps
    helper = MagicMock()
    helper.sink_size.return_value, helper.__iter__.side_effect = steps, lambda: iter([()] * (len(rows) // steps))
    source = SimpleNamespace(get_dataset_size=lambda: len(rows), _dataset_helper=helper)
    given = _InternalCallbackParam(train_network=model._train_network, optimizer=optimizer, cur_step_num=0)
    given |= {"batch_num": steps, "list_callback": callbacks, "train_dataset": source}
    with pytest.MonkeyPatch.context() as patch, _CallbackManager([*callbacks]) as called:
        patch.setattr(model_module, "connect_network_with_dataset", lambda *_: cell)
        model._train_dataset_sink_process(1, source, called, given, steps, 0, (None, 1, False))


def batch(seed=0):
    return Tensor(np.random.default_rng(seed).standard_normal((6, 8)).astype(np.float32))


class Losses(Callback):
    """What a callback behind the monitor sees of each step's loss."""

    def __init__(self):
        super().__init__()
        self.bits = []

    def on_train_step_end(self, run_context):
        self.bits.append(run_context.original_args().net_outputs.asnumpy().tobytes())


class ComposedRMSNorm(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.weight = Parameter(np.ones(width, np.float32), name="weight")

    def construct(self, x):
        rstd = ops.rsqrt(ops.mean(ops.square(x), -1, True) + 1e-6)
        return x * rstd * self.weight


class Block(nn.Cell):
    """Pre-norm: the residual goes past the norm."""

    def __init__(self, norm):
        super().__init__()
        self.norm = norm
        self.up, self.down = nn.Dense(HIDDEN, 2 * HIDDEN), nn.Dense(2 * HIDDEN, HIDDEN)

    def construct(self, x):
        return x + self.down(ops.tanh(self.up(self.norm(x))))


class Decoder(nn.Cell):
    def __init__(self, make_norm=lambda: nn.LayerNorm((HIDDEN,))):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.CellList([Block(make_norm()) for _ in range(2)])
        self.norm_out = make_norm()

    def construct(self, x, y):
        x = self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return ops.mean(ops.square(self.norm_out(x) - y))


class Moving(Decoder):
    """With moving statistics."""

    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm1d(HIDDEN)

    def construct(self, x, y):
        x = self.embedding(x)
        for block in self.blocks:
            x = x + block(x)
        shape = x.shape
        x = self.bn(x.reshape((-1, HIDDEN))).reshape(shape)
        return ops.mean(ops.square(self.norm_out(x) - y))


class Drawing(Decoder):
    """Draws from a stream that nobody can put back."""

    def construct(self, x, y):
        return super().construct(x, y + ops.standard_normal((2, 5, HIDDEN)))


class RmsDecoder(Decoder):
    def __init__(self):
        super().__init__(lambda: ComposedRMSNorm(HIDDEN))


class Convolutions(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, has_bias=True)
        self.bn = nn.BatchNorm2d(4)
        self.conv2 = nn.Conv2d(4, 4, 3)
        self.gn = nn.GroupNorm(2, 4)

    def construct(self, x, y):
        x = ops.relu(self.bn(self.conv1(x)))
        x = x + self.gn(self.conv2(x))
        return ops.mean(ops.square(x)) + 0 * ops.mean(y)


class Containers(nn.Cell):
    """Norms that are themselves elements of a SequentialCell and of a CellList."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.sequence = nn.SequentialCell([nn.Dense(HIDDEN, HIDDEN), nn.LayerNorm((HIDDEN,)), nn.Dense(HIDDEN, HIDDEN)])
        self.cells_of_list = nn.CellList([nn.LayerNorm((HIDDEN,)), nn.Dense(HIDDEN, HIDDEN)])

    def construct(self, x, y):
        x = self.sequence(self.embedding(x))
        for cell in self.cells_of_list:
            x = x + cell(x)
        return ops.mean(ops.square(x - y))


class CalledTwice(nn.Cell):
    """One norm called twice; `z0` and `z1` are zeros that show the gradients of its two outputs."""

    def __init__(self, probed=False):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.norm = nn.LayerNorm((HIDDEN,))
        self.dense = nn.Dense(HIDDEN, HIDDEN)
        self.probed = probed
        if probed:
            self.z0, self.z1 = (Parameter(np.zeros((2, 5, HIDDEN), np.float32), name=name) for name in ("z0", "z1"))

    def construct(self, x, y):
        first = self.norm(self.embedding(x))
        if self.probed:
            first = first + self.z0
        second = self.norm(first + ops.tanh(self.dense(first)))
        if self.probed:
            second = second + self.z1
        return ops.mean(ops.square(second - y))


NETS = {
    "decoder": (Decoder, ids),
    "rms decoder": (RmsDecoder, ids),
    "convolutions": (Convolutions, images),
    "containers": (Containers, ids),
    "shared": (CalledTwice, ids),
}


def probe(net, *inputs):
    """Adds a zero to the output of every norm and embedding of `net`; returns them by the names of their cells."""
    kinds = ("Norm", "Norm2d", "Embedding")
    found = {name: cell for name, cell in net.cells_and_names() if type(cell).__name__.endswith(kinds)}
    outputs = {}
    hooks = [each.register_forward_hook(lambda cell, _, out: outputs.update({cell: out})) for each in found.values()]
    before = ms.get_context("mode")
    ms.set_context(mode=1)
    net(*inputs)
    ms.set_context(mode=before)
    zeros = {}
    for name, cell in found.items():
        zeros[name] = cell.asd_zero = Parameter(ops.zeros_like(outputs[cell]), name=f"{name}.asd_zero")
        cell.__class__ = probed_class(type(cell))
    for hook in hooks:
        hook.remove()
    return zeros


def probed_class(base):
    class Probed(base):
        def construct(self, x):
            return super().construct(x) + self.asd_zero

    return Probed


def gradients(net, weights, *inputs):
    """The gradients of the loss as arrays."""
    weights = ms.ParameterTuple(weights)
    found = ms.ops.GradOperation(get_by_list=True, sens_param=True)(net, weights)(*inputs, Tensor(1.0, ms.float32))
    return [gradient.asnumpy() for gradient in found]


def truth(name, seed=0):
    """Per checked cell of the net `name` the gradient of a zero added to its output, on the batch `seed`."""
    return _truth(name, seed, ms.get_context("mode"))


@cache
def _truth(name, seed, mode):
    make, make_input = NETS[name]
    net = fill(make())
    zeros = probe(net, make_input(seed), targets(seed))
    return dict(zip(zeros, gradients(net, list(zeros.values()), make_input(seed), targets(seed)), strict=True))


def norm(array):
    """L2 norm in float64."""
    return float(np.linalg.norm(array.astype(np.float64).reshape(-1)))


def readings():
    """What the table holds, by checkpoint; empties it."""
    found = table().read(table().sites())
    assert len({reading.checkpoint for reading in found}) == len(found)
    return {reading.checkpoint: reading for reading in found}


def assert_reading(reading, *arrays):
    """`reading` is the worst of `arrays`, each the true gradient of one call."""
    assert reading.finite == all(np.isfinite(array).all() for array in arrays)
    np.testing.assert_allclose(reading.value, max(map(norm, arrays)), rtol=2e-6)


def one_step_cell(net, optimizer):
    """MindSpore's own training cell."""
    cell = nn.TrainOneStepCell(net, optimizer)
    cell.set_train()
    return cell


def value_and_grad_loop(net, optimizer):
    """A loop of one's own."""
    grad = ms.value_and_grad(net, None, optimizer.parameters)

    def step(*inputs):
        loss, found = grad(*inputs)
        optimizer(found)
        return loss

    return step


def jitted_step(net, optimizer):
    """The whole step compiled."""
    return ms.jit(value_and_grad_loop(net, optimizer))


class JittedForward(nn.Cell):
    """The forward pass compiled, everything else PyNative."""

    def __init__(self, net):
        super().__init__(auto_prefix=False)
        self.net = net

    @ms.jit
    def construct(self, *inputs):
        return self.net(*inputs)


def jitted_forward(net, optimizer):
    return value_and_grad_loop(JittedForward(net), optimizer)


STYLES = {
    "one step cell": one_step_cell,
    "value_and_grad": value_and_grad_loop,
    "jitted step": jitted_step,
    "jitted forward": jitted_forward,
}


def train(net, optimizer, style, make_input=ids, steps=3):
    """Trains and returns losses, weights and the optimizer's state."""
    step = STYLES[style](net, optimizer)
    losses = [step(make_input(i), targets(i)).asnumpy() for i in range(steps)]
    return {"losses": np.array(losses), **state_of(net, optimizer)}
