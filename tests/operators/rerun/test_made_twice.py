"""A step that is made twice leaves nothing behind but what one leaves, whatever else a training writes in it."""

import copy
import logging
import random
from array import array
from collections import deque
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, batch, fill, values
from mindspore import Parameter, Tensor, nn, ops

from asd import Config
from asd.operators import StepMonitor
from asd.operators.rerun.held import held_by, reached_from
from asd.operators.rerun.python_state import PythonState

pytestmark = pytest.mark.usefixtures("clean")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Dense(8, 8), nn.LayerNorm((8,))

    def construct(self, x):
        return (self.norm(self.first(x)) * x).mean()


class Averaging(nn.TrainOneStepCell):
    """Keeps a mean of its weights in Parameters that look like weights."""

    def __init__(self, net, optimizer):
        super().__init__(net, optimizer)
        self.means = self.weights.clone(prefix="mean", init="zeros")

    def construct(self, x):
        loss = super().construct(x)
        for mean, weight in zip(self.means, self.weights):  # noqa: B905 - a graph knows no `strict`
            ops.assign(mean, mean * 0.5 + weight * 0.5)
        return loss


class Counting(nn.TrainOneStepCell):
    """Keeps a number, a list, a dict, an array and a tensor in Python, and its batch gets larger with the number."""

    def __init__(self, net, optimizer):
        super().__init__(net, optimizer)
        self.count, self.losses, self.by_name, self.array = 0, [], {"steps": 0}, np.zeros(2)
        self.last = deque([0.0], maxlen=2)
        self.tensor = Tensor([0.0])

    def construct(self, x):
        self.count += 1
        loss = super().construct(x * (1 + 0.1 * self.count))
        self.losses.append(self.count)
        self.last.append(self.count)
        self.by_name["steps"] += 1
        self.array += 1
        self.tensor = self.tensor + 1
        return loss

    def kept(self):
        return self.count, self.losses, list(self.last), self.by_name, self.array.tolist(), self.tensor.asnumpy().item()


def train(make, monitored, *, whole=True):
    """Five steps of a cell in a loop; `whole` says whether the monitor knows the cell or its network alone."""
    net = fill(Net())
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    cell = make(net, optimizer)
    cell.set_train()
    step, monitor = cell, None
    if monitored:
        monitor = StepMonitor(Config(enable=1, on_anomaly="skip"), sinks=[])
        monitor.attach(cell if whole else net, optimizer)
        step = monitor.watch_step(cell if whole else lambda x: cell(x))
    losses = []
    for number in range(5):
        loss = step(batch(number))
        if monitor is not None:
            monitor.step(loss)
        losses.append(loss.asnumpy().tobytes())
    return losses, values(cell.get_parameters()), cell, monitor


@pytest.mark.parametrize("whole", [True, False], ids=["cell", "function"])
def test_means_of_weights_are_what_they_are_without_detection(mode, whole):
    losses, weights, _, _ = train(Averaging, monitored=False)
    ours, our_weights, _, monitor = train(Averaging, monitored=True, whole=whole)
    assert monitor.monitor.protections.on["repeats"] == "bit for bit, as the second step showed"
    assert ours == losses
    assert_same_bits(our_weights, weights)


@pytest.mark.parametrize("mode", ["pynative"], indirect=True)
def test_what_a_cell_keeps_in_python_is_put_back_and_no_step_is_made_again_then(mode, caplog):
    losses, weights, plain, _ = train(Counting, monitored=False)
    with caplog.at_level(logging.WARNING, "asd"):
        ours, our_weights, cell, monitor = train(Counting, monitored=True)
    assert cell.kept() == plain.kept()
    assert ours == losses
    assert_same_bits(our_weights, weights)
    reason = (
        "no step will be made again: a step changes Counting.count besides what the optimizer does, and would change "
        "it once more"
    )
    assert monitor.monitor.protections.missing["ASD_CONFIRM"] == [reason]
    assert reason in caplog.text


def test_an_optimizer_whose_own_construct_is_compiled_updates_once_and_is_told(mode, caplog):
    def make(net, optimizer):
        return nn.TrainOneStepCell(net, optimizer)

    def compiled(net, optimizer):
        optimizer.construct = ms.jit(optimizer.construct)
        return make(net, optimizer)

    losses, weights, _, _ = train(make, monitored=False)
    with caplog.at_level(logging.WARNING, "asd"):
        ours, our_weights, cell, _ = train(compiled, monitored=True)
    assert ours == losses
    assert_same_bits(our_weights, weights)
    assert cell.optimizer.global_step.asnumpy().item() == 5
    assert "the construct of Momentum was set on this one optimizer" in caplog.text


class Closed:
    """Lets nobody look into it."""

    def __getattribute__(self, name):
        raise RuntimeError(name)


class State:
    def __init__(self):
        self.closed, self.count, self.rows = Closed(), 0, [[1], [2]]


class Holder(nn.Cell):
    def __init__(self):
        super().__init__()
        self.state, self.itself = State(), []
        self.itself.append(self.itself)
        self.register_buffer("seen", Tensor([0.0]))


def test_nested_objects_lists_and_buffers_are_put_back():
    cell = Holder()
    before = copy.deepcopy(cell.state.rows)
    state = PythonState([cell])
    assert state.put_back() == ""
    cell.state.count += 1
    cell.state.rows[1].append(3)
    cell.seen.add_(1)
    assert state.put_back() != ""
    assert (cell.state.count, cell.state.rows, cell.seen.asnumpy().item()) == (0, before, 0)
    assert state.put_back() == ""


def test_a_function_shows_the_cells_and_parameters_that_it_names():
    net, other, unused = nn.Dense(2, 2), Parameter(Tensor([0.0]), name="other"), nn.Dense(2, 2)
    cells = [nn.ReLU()]

    def inner(x):
        return cells[0](net(x))

    closed, held = Closed(), {"held": [Parameter(Tensor([0.0]), name="held")]}
    held["itself"] = held

    def outer(x):
        ops.assign(other, other + 1)
        return ms.value_and_grad(inner)(x), closed, held, later

    found = list(reached_from(ms.jit(outer)))
    assert found == list(reached_from(outer))
    assert all(any(each is one for one in found) for each in (net, other, cells[0], held["held"][0]))
    later = "bound after the search"
    assert outer.__closure__
    assert later
    assert not any(each is unused for each in found)


class Reading(nn.TrainOneStepCell):
    """Reads on in something of its own with each step."""

    def __init__(self, net, optimizer):
        super().__init__(net, optimizer)
        self.own = (float(number) for number in range(1, 100))

    def construct(self, x):
        return super().construct(x * next(self.own))


class Drawing(Reading):
    def __init__(self, net, optimizer):
        super().__init__(net, optimizer)
        self.own = np.random.default_rng(3)

    def construct(self, x):
        return nn.TrainOneStepCell.construct(self, x * float(self.own.random()))


@pytest.mark.parametrize("mode", ["pynative"], indirect=True)
@pytest.mark.parametrize("make", [Reading, Drawing])
def test_a_step_that_reads_on_in_something_of_its_own_is_not_made_again(mode, make):
    losses, weights, _, _ = train(make, monitored=False)
    ours, our_weights, _, monitor = train(make, monitored=True)
    assert ours == losses
    assert_same_bits(our_weights, weights)
    (reason,) = monitor.monitor.protections.missing["ASD_CONFIRM"]
    assert f"{make.__name__}.own" in reason


class Past(nn.TrainOneStepCell):
    """Updates the weights itself, past the optimizer that is guarded."""

    def __init__(self, net, optimizer):
        super().__init__(net, optimizer)
        self.differentiate = ops.GradOperation(get_by_list=True)

    def construct(self, x):
        loss = self.network(x)
        gradients = self.differentiate(self.network, self.weights)(x)
        for weight, gradient in zip(self.weights, gradients):  # noqa: B905 - as above
            ops.assign_sub(weight, gradient * 0.1)
        return loss


class Decaying(nn.TrainOneStepCell):
    """Writes the weights before the optimizer does."""

    def construct(self, x):
        for weight in self.weights:
            ops.assign(weight, weight * 0.9)
        return super().construct(x)


class Scheduled(nn.TrainOneStepCell):
    """Moves its learning rate on by itself."""

    def construct(self, x):
        loss = super().construct(x)
        ops.assign(self.optimizer.learning_rate, self.optimizer.learning_rate * 0.5)
        return loss


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Past, "the guard of the optimizer saw no gradient so far"),
        (Decaying, "no step will be made again: a step changes "),
        (Scheduled, "no step will be made again: a step changes "),
    ],
)
def test_what_a_step_writes_past_the_guard_is_written_once(mode, make, said, caplog):
    losses, weights, _, _ = train(make, monitored=False)
    with caplog.at_level(logging.WARNING, "asd"):
        ours, our_weights, _, _ = train(make, monitored=True)
    assert ours == losses
    assert_same_bits(our_weights, weights)
    assert said in caplog.text


@pytest.mark.parametrize("mode", ["pynative"], indirect=True)
def test_a_first_step_whose_update_is_skipped_does_not_end_replays(mode):
    net = fill(Net())
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)
    monitor = StepMonitor(Config(enable=1, on_anomaly="skip"), sinks=[])
    monitor.attach(net, optimizer)
    differentiate, skipped = ms.value_and_grad(net, None, net.trainable_params()), [True]

    def run(x):
        loss, gradients = differentiate(x)
        if not skipped[0]:
            optimizer(gradients)
        return loss

    step, obstacles = monitor.watch_step(run), []
    for number in range(4):
        skipped[0] = number == 0  # as under a loss scale that overflows
        loss = step(batch(number))
        obstacles.append(monitor._training._replay.step.obstacle())
        monitor.step(loss)
    assert [bool(each) for each in obstacles] == [False, True, False, False]


class Exotic(nn.Cell):
    """Keeps state in each way that can be put back."""

    steps = 0

    def __init__(self):
        super().__init__()
        self.bytes, self.numbers = bytearray(b"ab"), array("i", [1, 2])
        self.old, self.python, self.new = np.random.RandomState(1), random.Random(1), np.random.default_rng(1)
        self.deep, self.space, self.slots = {"a": [{"b": [1]}]}, SimpleNamespace(count=0), Slotted()
        self.config, self.mean = Configuration(rate=0.1), Parameter(Tensor([0.0]), name="mean")
        self.means = {"hidden": [self.mean]}


class Slotted:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0


class Configuration(dict):
    pass


CHANGES = {
    "bytes": lambda cell: cell.bytes.__setitem__(0, 3),
    "array": lambda cell: cell.numbers.__setitem__(0, 3),
    "RandomState": lambda cell: cell.old.normal(),
    "random.Random": lambda cell: cell.python.random(),
    "default_rng": lambda cell: cell.new.normal(),
    "deep": lambda cell: cell.deep["a"][0]["b"].append(2),
    "namespace": lambda cell: setattr(cell.space, "count", 1),
    "slots": lambda cell: setattr(cell.slots, "count", 1),
    "class": lambda cell: setattr(Exotic, "steps", 1),
    "new": lambda cell: setattr(cell, "later", 1),
    "config": lambda cell: cell.config.update(rate=0.2),
}


def shown(cell):
    draws = [copy.deepcopy(stream) for stream in (cell.old, cell.python, cell.new)]
    return (
        bytes(cell.bytes), list(cell.numbers), draws[0].normal(), draws[1].random(), draws[2].normal(), str(cell.deep),
        cell.space.count, cell.slots.count, cell.steps, hasattr(cell, "later"), dict(cell.config),
    )  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_a_cell_keeps_is_put_back_and_named(name):
    cell = Exotic()
    before, state = shown(cell), PythonState([cell])
    assert state.opaque == ""
    assert state.put_back() == ""
    CHANGES[name](cell)
    assert shown(cell) != before
    assert state.put_back().startswith(("Exotic.", "Configuration"))
    assert shown(cell) == before
    assert state.put_back() == ""


def test_a_parameter_in_a_plain_list_of_a_cell_is_found():
    cell = Exotic()
    assert any(each is cell.means["hidden"][0] for each in held_by([cell]).parameters)


def test_iterators_large_tensors_and_hooks_are_told_before():
    large, reading, hooked = Holder(), Holder(), nn.Dense(2, 2)
    large.table = np.zeros(1 << 24)
    reading.own = iter([1])
    count = [0]
    hooked.register_forward_hook(lambda *_: count.append(1))
    found = [PythonState([cell]).opaque for cell in (large, reading, hooked, nn.Dense(2, 2), Holder())]
    assert found == ["Holder.table", "Holder.own", "hooks of Dense", "", ""]


def test_functions_inside_functions_and_defaults_show_what_they_name():
    given = Parameter(Tensor([0.0]), name="given")

    def step(*, kept=given):
        return [GLOBAL_CELL for _ in range(2)], kept

    found = list(reached_from(step))
    assert any(each is given for each in found)
    assert any(each is GLOBAL_CELL for each in found)


GLOBAL_CELL = nn.ReLU()
