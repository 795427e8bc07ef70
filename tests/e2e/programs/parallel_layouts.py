"""One of four ranks that train together: `parallel_layouts.py MODE LAYOUT COUNT SEED`; started by msrun.

LAYOUT is `tensor` for tensor parallel 2 by data parallel 2, `pipeline` for two stages by data parallel 2, `optimizer`
for data parallel 4 where each rank updates a quarter of the weights. The groups are made by hand, on plain MindSpore.
The same training is made twice: without faults, then with COUNT of them, each in a step of its own. Each rank prints
one JSON object.
"""

import json
import sys
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.communication import create_group, get_rank, init
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops import operations as P  # noqa: N812

sys.path.append(str(Path(__file__).parents[3]))

from asd import Config
from asd.injection import Fault
from asd.operators import StepMonitor, tell_shard
from benchmarks._host_fault import apply, numpy_operator

mode, layout = sys.argv[1:3]
count, seed = map(int, sys.argv[3:])
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
rank = get_rank()
WIDTH, HIDDEN, BATCH, WARM, EVERY = 8, 16, 16, 14, 3
PATTERNS = ("flip=30", "scale=1e4", "scale=1e8", "set=1e20", "set=nan", "set=inf")  # what ReLU made 0 would be small
DATA_RANKS = {"tensor": 2, "pipeline": 2, "optimizer": 4}[layout]
part, stage = (rank % 2 if layout == "tensor" else 0), (rank // 2 if layout == "pipeline" else 0)


def group(name, of):
    """The name of the group of those ranks for which `of` is the same as for this one."""
    ranks = [other for other in range(4) if of(other) == of(rank)]
    name = f"{name}{ranks[0]}"
    create_group(name, ranks)
    return name


if layout == "tensor":
    parts, copies = group("parts", lambda each: each // 2), group("copies", lambda each: each % 2)
elif layout == "pipeline":
    stages, copies = group("stages", lambda each: each % 2), group("copies", lambda each: each // 2)


class Now:
    """The fault of the step that is made; none if `strikes` is none."""

    strikes, step, runs = None, 0, 0
    struck = False


def strike(place, array):
    """What a fault at `place` makes of an array."""
    fault, where, lasts = Now.strikes or (None, "", False)
    if where != place or fault.rank != rank or not (Now.runs == 1 or lasts):
        return array
    faulty = apply(fault, array)
    Now.struck |= not np.array_equal(faulty, array)  # 0 of the other sign is the same number
    return faulty


class Point(nn.Cell):
    """An identity whose value and gradient a fault can change."""

    def __init__(self, name):
        super().__init__()
        self.value = numpy_operator(lambda array: strike(f"{name}:output", array))
        self.gradient = numpy_operator(lambda array: strike(f"{name}:gradient", array))

    def construct(self, x):
        return self.value(x)

    def bprop(self, x, out, dout):
        return (self.gradient(dout),)


class LocalLinear(nn.Cell):
    """What this rank has of a layer."""

    def __init__(self, name, inputs, outputs, key):
        super().__init__()
        values = np.random.default_rng(key).normal(size=(outputs, inputs)) / np.sqrt(inputs)
        self.weight = Parameter(Tensor(values.astype(np.float32)), name=f"{name}.weight")
        self.matmul, self.of_weight, self.point = P.MatMul(transpose_b=True), Point(f"{name}.weight"), Point(name)

    def construct(self, x):
        return self.point(self.matmul(x, self.of_weight(self.weight)))


class Copy(nn.Cell):
    """Gives x to all parts of a layer: their gradients are summed up."""

    def __init__(self):
        super().__init__()
        self.sum = P.AllReduce("sum", parts)

    def construct(self, x):
        return x * 1.0

    def bprop(self, x, out, dout):
        return (self.sum(dout),)


class Sum(nn.Cell):
    """Sums up what all parts of a layer computed."""

    def __init__(self):
        super().__init__()
        self.sum = P.AllReduce("sum", parts)

    def construct(self, x):
        return self.sum(x)

    def bprop(self, x, out, dout):
        return (dout,)


class PlacedNorm(nn.LayerNorm):
    """With a place for faults behind it."""

    def __init__(self, name):
        super().__init__((WIDTH,))
        self.point = Point(name)

    def construct(self, x):
        return self.point(super().construct(x))


class Block(nn.Cell):
    """A column-parallel and a row-parallel layer behind a norm."""

    def __init__(self, number):
        super().__init__()
        divided = 2 if layout == "tensor" else 1
        self.norm = PlacedNorm(f"norm{number}")
        self.up = LocalLinear(f"up{number}", WIDTH, HIDDEN // divided, [seed, number, part, 1])
        self.down = LocalLinear(f"down{number}", HIDDEN // divided, WIDTH, [seed, number, part, 2])
        self.copy, self.sum = (Copy(), Sum()) if divided > 1 else (ops.Identity(), ops.Identity())
        self.relu = nn.ReLU()

    def construct(self, x):
        return x + self.sum(self.down(self.relu(self.up(self.copy(self.norm(x))))))


class Send(nn.Cell):
    """Hands x on to the next stage; its gradient comes from there."""

    def __init__(self):
        super().__init__()
        self.sum = P.AllReduce("sum", stages)

    def construct(self, x):
        return self.sum(x)

    def bprop(self, x, out, dout):
        return (self.sum(out * 0.0),)


class Net(nn.Cell):
    """The blocks of this rank, and the loss if it has the last one."""

    def __init__(self):
        super().__init__()
        numbers = range(4)[2 * stage :][: 2 if layout == "pipeline" else 4]
        self.blocks = nn.SequentialCell([Block(number) for number in numbers])
        self.send = Send() if layout == "pipeline" and stage == 0 else None

    def construct(self, x, y):
        x = self.blocks(x)
        if self.send is not None:
            return self.send(x).mean()
        return ((x - y) ** 2).mean()


class InOrder(nn.DistributedGradReducer):
    """Takes the means one behind the other, and all of them.

    Each rank's compiler would leave out the sums of gradients that this rank does not update, and choose an order for
    the others. So ranks with unlike graphs would wait for sums that nobody makes, with detection and without.
    """

    def __init__(self, weights):
        super().__init__(weights, True, DATA_RANKS)
        self.over_ranks = P.AllReduce()

    def construct(self, gradients):
        done, found = gradients[0], ()
        for gradient in gradients:
            done = self.over_ranks(F.depend(gradient, done))
            found = (*found, done * (1 / DATA_RANKS))
        return found


class Train(nn.Cell):
    """One step."""

    def __init__(self, net, optimizer):
        super().__init__(auto_prefix=False)
        self.net, self.optimizer = net, optimizer
        self.weights = ms.ParameterTuple(net.trainable_params())
        self.differentiate = ms.value_and_grad(net, 0, self.weights)
        self.shares = layout == "optimizer"
        if self.shares:
            self.reducer = InOrder(self.weights)
        else:
            self.reducer = nn.DistributedGradReducer(self.weights, True, DATA_RANKS, group=copies)
        self.receives = layout == "pipeline" and stage == 1
        self.between = P.AllReduce("sum", stages) if self.receives else None
        self.to_all = P.AllReduce()
        self.owned = tuple(i % 4 == rank for i in range(len(self.weights)))

    def construct(self, x, y):
        if self.receives:
            x = self.between(x * 0.0)
        loss, (of_input, gradients) = self.differentiate(x, y)
        if self.receives:
            gradients = F.depend(gradients, self.between(of_input))
        loss = F.depend(loss, self.optimizer(self.mine(self.reducer(gradients))))
        if self.shares:
            loss = F.depend(loss, self.share(loss))
        return loss

    def mine(self, gradients):
        """Those whose weights this rank updates."""
        if not self.shares:
            return gradients
        found = ()
        for i in range(len(self.owned)):
            if self.owned[i]:
                found = (*found, F.depend(gradients[i], gradients[-1]))
        return found

    def share(self, done):
        """Gives every weight to all ranks from the one that updates it."""
        for i in range(len(self.owned)):
            weight = F.depend(self.weights[i], done)
            given = self.to_all(weight if self.owned[i] else weight * 0.0)
            done = F.depend(done, ops.assign(self.weights[i], given))
        return done


def plan():
    """By step the fault that strikes in it: the fault, its place, and whether it comes again when the step is repeated.

    All ranks draw the same; a place is one that its rank has.
    """
    random, found = np.random.default_rng([seed, 7]), {}
    for number in range(count):
        step, victim = WARM + EVERY * number, int(random.integers(4))
        first, last = {"pipeline": [(0, 2), (2, 4)][victim // 2]}.get(layout, (0, 4))
        block = int(random.integers(first, last))
        name = str(random.choice(["norm", "up", "down", "up.weight", "down.weight"]))
        place = (
            f"{name.partition('.')[0]}{block}{'.weight' if '.' in name else ''}:{random.choice(['output', 'gradient'])}"
        )
        pattern, elements = str(random.choice(PATTERNS)), int(random.integers(1, 5))
        fault = Fault.parse(f"output:x:{pattern}:step=1:rank={victim}:elements={elements}:seed={step}")
        found[step] = fault, place, bool(random.random() < 0.25)
    return found


def batch(step):
    """That of this rank's replica."""
    replica = {"tensor": rank // 2, "pipeline": rank % 2, "optimizer": rank}[layout]
    random = np.random.default_rng([seed, step, replica])
    x = random.normal(size=(BATCH, WIDTH)).astype(np.float32)
    return Tensor(x), Tensor(np.tanh(x[:, ::-1]).copy())


def values():
    """The weights and the optimizer's state."""
    return [parameter.asnumpy().copy() for parameter in held]


def put(wanted):
    """Back to what `values` gave."""
    for parameter, value in zip(held, wanted, strict=True):
        parameter.copy_(Tensor(value))


def same(one, other):
    """Bit for bit."""
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def run(*inputs):
    Now.runs += 1
    return train(*inputs)


if layout != "optimizer":
    tell_shard(part, stage=stage, weights={"norm": "whole"} if layout == "tensor" else None)
net = Net()
weights = net.trainable_params()
optimizer = nn.Adam(weights[rank::4] if layout == "optimizer" else weights, 1e-3)
train = Train(net, optimizer).set_train()
config = Config(protection="document", enable=1, on_anomaly="skip", rule="adaptive", confirm=0.5)
told = []
monitor = StepMonitor(config, sinks=[told.append], replay=True)
monitor.attach(train, optimizer, reducer=train.reducer)
held = list({id(each): each for each in [*net.get_parameters(), *optimizer.get_parameters()]}.values())
watched = monitor.watch_step(run)
begin, rules = values(), monitor.monitor.state()
faults, steps = plan(), WARM + EVERY * count
clean, healthy = {}, []
for number in range(1, steps + 1):
    Now.step, Now.runs = number, 0
    healthy += [str(event) for event in monitor.step(watched(*batch(number)))]
    clean[number] = values()
put(begin)
monitor.monitor.restore(rules)
found, between = [], []
before = begin
for number in range(1, steps + 1):
    Now.strikes, Now.step, Now.runs, Now.struck = faults.get(number), number, 0, False
    refused = monitor.monitor.status.refused
    events = monitor.step(watched(*batch(number)))
    after = values()
    if Now.strikes is None:
        between += [str(event) for event in events]
    else:
        fault, place, lasts = Now.strikes
        told_of = ("rank", "verdict", "refused", "checkpoint", "reason")
        first = {"rank": fault.rank, "lasts": lasts, "struck": Now.struck}
        then = {"same": same(after, before if lasts else clean[number])}
        then["refused"] = monitor.monitor.status.refused - refused
        then["events"] = [[each.kind, each.level.name, *(getattr(each, name) for name in told_of)] for each in events]
        found.append(first | then)
    if not same(after, clean[number]):
        put(clean[number])
    before = clean[number]
line = {"rank": rank, "healthy": healthy, "between": between, "found": found}
line["problems"] = [event.reason for event in told if event.kind == "problem"]
line["protections"] = monitor.monitor.protections.to_json()
print("LAYOUT " + json.dumps(line), flush=True)
