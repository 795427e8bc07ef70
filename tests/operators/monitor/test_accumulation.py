"""Gradients that add up over several steps, each of which is judged: a bad one never reaches the weights."""

import mindspore as ms
import pytest
from checked_nets import Decoder, assert_same_bits, fill, ids, targets, values
from mindspore import Parameter, Tensor, nn, ops

from asd import Config
from asd.operators import StepMonitor

pytestmark = pytest.mark.usefixtures("clean")
PARTS = 4
ORDERS = [
    "add, clip",
    *(pytest.param(order, marks=pytest.mark.slow) for order in ("add", "clip, add", "scale, add", "clip, scale, add")),
]


class Training:
    """Adds up the gradients of four micro-batches, and updates in each fourth step."""

    def __init__(self, order="add, clip", *, bad=(), declared=False, keeps=False, leaves_out=False):
        self.order, self.bad, self.keeps, self.leaves_out = order, bad, keeps, leaves_out
        self.net = fill(Decoder())
        self.optimizer = nn.Momentum(self.net.trainable_params(), 1e-2, 0.9)
        self.sums = self.optimizer.parameters.clone(prefix="sum", init="zeros")
        self.events, self.count = [], 0
        config = Config(protection="document", enable=1, on_anomaly="skip", upper=(1000, 100), replay=True)
        self.monitor = StepMonitor(config, sinks=[self.events.append])
        self.monitor.attach(self.net, self.optimizer)
        self.gradients = ms.value_and_grad(self.net, None, self.optimizer.parameters)
        self.step = self.monitor.watch_step(self.one, self.save, self.restore) if declared else self.one

    def save(self):
        return [total.asnumpy().copy() for total in self.sums]

    def restore(self, sums):
        for total, value in zip(self.sums, sums, strict=True):
            total.copy_(Tensor(value))

    def one(self, x, y):
        loss, gradients = self.gradients(x, y)
        if self.order.startswith("clip"):
            gradients = ops.clip_by_global_norm(gradients, 1.0)
        if "scale" in self.order:
            gradients = [gradient / PARTS for gradient in gradients]
        for total, gradient in zip(self.sums, gradients, strict=True):
            total.copy_(total + gradient)
        self.count += 1
        if self.count % PARTS == 0 and not (self.leaves_out and loss > 1e3):
            sums = tuple(total.value() for total in self.sums)
            self.optimizer(ops.clip_by_global_norm(sums, 1.0) if self.order.endswith("clip") else sums)
        if self.count % PARTS == 0 and not self.keeps:
            for total in self.sums:
                total.copy_(ops.zeros_like(total))
        return loss

    def run(self, *numbers):
        for number in numbers:
            self.monitor.step(self.step(ids(number), targets(number) * (1e9 if number in self.bad else 1.0)))
        return values(self.net.get_parameters())

    def told(self):
        return sorted({(event.step, event.kind, event.refused) for event in self.events})


@pytest.mark.parametrize("order", ORDERS)
def test_an_update_that_holds_a_bad_gradient_is_refused_whatever_its_size_then(order):
    ours, theirs = Training(order, bad=[6]), Training(order)
    assert_same_bits(ours.run(*range(1, 13)), theirs.run(*range(1, 5), *range(9, 13)))
    assert ours.told() == [(6, "anomaly", False), (8, "follower", True)]
    assert all(word in ours.events[-1].reason for word in ("gradients of step 6", "is not put back"))


def test_a_sum_that_is_declared_is_put_back_to_where_it_began():
    training = Training(bad=[6], declared=True, keeps=True)
    training.run(*range(1, 5))
    before = training.save()
    training.run(*range(5, 9))
    assert [each.tobytes() for each in training.save()] == [each.tobytes() for each in before]
    assert all(word in training.events[-1].reason for word in ("gradients of step 6", "was put back"))


class Accumulating(nn.Cell):
    """Applies the sum of the gradients of every two calls."""

    def __init__(self, net, optimizer):
        super().__init__(auto_prefix=False)
        self.net, self.optimizer, self.weights = net, optimizer, optimizer.parameters
        self.grad = ops.GradOperation(get_by_list=True)
        self.sums = self.weights.clone(prefix="sum", init="zeros")
        for one in self.sums:
            one.requires_grad = False
        self.count = Parameter(Tensor(0, ms.int32), name="count", requires_grad=False)
        self.ballast = Parameter(Tensor([0.0], ms.float32), name="ballast", requires_grad=False)

    def construct(self, x, y):
        loss = self.net(x, y)
        gradients = self.grad(self.net, self.weights)(x, y)
        for total, gradient in zip(self.sums, gradients):  # noqa: B905 - compiled
            loss = ops.depend(loss, ops.assign_add(total, gradient))
        loss = ops.depend(loss, ops.assign_add(self.count, Tensor(1, ms.int32)))
        if ops.depend(self.count, loss) % 2 == 0:
            loss = ops.depend(loss, self.optimizer(self.sums))
            for total in self.sums:
                loss = ops.depend(loss, ops.assign(total, ops.zeros_like(total)))
        return loss


def test_the_sums_of_a_declared_cell_are_put_back_in_a_compiled_graph(graph):
    net = fill(Decoder())
    optimizer = nn.SGD(net.trainable_params(), 1e-2)
    cell, events = Accumulating(net, optimizer), []
    config = Config(protection="document", enable=1, on_anomaly="skip", upper=(1000, 100), replay=True)
    monitor = StepMonitor(config, sinks=[events.append])
    monitor.attach(cell, optimizer)
    step, weights = monitor.watch_step(cell), []
    for number in range(1, 7):
        ops.assign(cell.ballast, Tensor([number], ms.float32))  # by the program, which is to stay
        monitor.step(step(ids(number), targets(number) * (1e9 if number == 3 else 1.0)))
        weights.append(values(net.get_parameters()))
    assert_same_bits(weights[3], weights[1])
    assert weights[5]["norm_out.gamma"].tobytes() != weights[3]["norm_out.gamma"].tobytes()
    assert [(event.step, event.kind) for event in events if event.refused] == [(4, "follower")]
    assert "was put back" in events[-1].reason
    assert (cell.count.asnumpy(), cell.ballast.asnumpy()) == (4, 6)


def test_a_step_that_the_training_itself_leaves_out_holds_no_later_update_back():
    training = Training("add", bad=[3], leaves_out=True)
    training.count, step = 3, training.one

    def each_updates(*batch):
        training.count = 3
        return step(*batch)

    training.step = each_updates
    weights = [training.run(number) for number in range(1, 5)]
    assert training.told() == [(3, "anomaly", False)]
    assert_same_bits(weights[2], weights[1])
    assert weights[3]["norm_out.gamma"].tobytes() != weights[2]["norm_out.gamma"].tobytes()
