"""One of several ranks that train together: `alike.py MODE STORY ACTION`; started by msrun.

What happens is one of `damage` (a bit of a weight of the last rank flips after step 3), `checkpoint` (the same, and
rank 0 saves after steps 2 and 4), `unlike` (every rank begins with other weights), `kill` and `stop` (rank 0 saves
after step 3, and the last rank does that to itself when it should compare its weights after step 4); or `parts` and
`labels`, where a bit of rank 1 flips as for `damage`, and the last rank holds another part than the others, or each
rank a last layer of its own; or `links`, where the all-reduce of the first of two micro-batches delivers wrong
sums, in step 5 to the last rank alone. Weights are compared after step 4, for `checkpoint` after steps 3 and 6. Each
rank prints one JSON object a step.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
if LINKS := sys.argv[2] == "links":
    from benchmarks.held_out.device import Device, broken

    device = Device()  # before MindSpore

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import get_group_size, get_rank, init
from small_net import Net

from asd import AnomalyDetected, Config, RankLostError
from asd.demo.llama import digest
from asd.operators import StepMonitor, tell_shard


class InTwo(nn.TrainOneStepCell):
    """A step of two micro-batches, each with a reduction of its own."""

    def construct(self, x, y):
        loss, first = self.reduced(x[:2], y[:2])
        more, second = self.reduced(x[2:], y[2:])
        return ops.depend(loss + more, self.optimizer(ops.HyperMap()(ops.Add(), first, second)))

    def reduced(self, x, y):
        loss = self.network(x, y)
        return loss, self.grad_reducer(self.grad(self.network, self.weights)(x, y, ops.ones_like(loss)))


mode, story, action = sys.argv[1:]
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
rank, last = get_rank(), get_group_size() - 1


if story == "parts":
    tell_shard(int(rank == last))
elif story == "labels":
    tell_shard(weights={"^last": rank})
seed = 1 + rank * (story in ("unlike", "labels")) + (story == "parts" and rank == last)
ms.set_seed(seed)
np.random.seed(seed)  # noqa: NPY002 - MindSpore draws weights from the global generator
net = Net()
if story == "labels":
    for weight in (*net.first.get_parameters(), *net.norm.get_parameters()):
        weight.set_data(Tensor(np.linspace(-0.5, 0.5, weight.size, dtype=np.float32).reshape(weight.shape)))
optimizer = nn.Adam(net.trainable_params(), 1e-2)
each = 3 if story == "checkpoint" else 4
config = Config(protection="full" if LINKS else "document", enable=1, on_anomaly=action, weight_hash=each)
monitor = StepMonitor(config)
train_step = (InTwo if LINKS else nn.TrainOneStepCell)(net, optimizer).set_train()
monitor.attach(train_step if LINKS else net, optimizer)
targets = Tensor(np.ones((4, 1), np.float32))


def tell(step, **more):
    print("STEP " + json.dumps({"rank": rank, "step": step, "digest": digest(net, optimizer), **more}), flush=True)


if LINKS:
    faults = (2, "all", "zero"), (3, "quarter", "stale"), (4, "element", "shifted"), (5, "all", "zero")
    where = {"bytes": 4 * net.first.weight.size, "call": 0, "stuck": 1.0}
    device.break_down(
        *(broken("AllReduce", *how, first=at, last=at, **where) for at, *how in faults if at != 5 or rank == last)
    )
for step in range(1, 7):
    if LINKS:
        device.begin(step)
    batch = np.random.default_rng([step, rank]).normal(size=(4, 8)).astype(np.float32)
    loss = train_step(Tensor(batch), targets)
    loss.asnumpy()
    if step == 4 and rank == last and story in ("kill", "stop"):
        print("BYE", flush=True)
        os.kill(os.getpid(), signal.SIGKILL if story == "kill" else signal.SIGSTOP)
    began = time.monotonic()
    try:
        events = monitor.step(loss)
    except AnomalyDetected as error:
        tell(step, kinds=[error.event.kind], stopped=True)
        raise
    except RankLostError as error:
        # No digest: in PyNative a read of a tensor would wait for the exchange that was given up.
        print("STEP " + json.dumps({"step": step, "lost": error.lost, "waited": time.monotonic() - began}), flush=True)
        raise
    tell(step, kinds=[event.kind for event in events])
    saved = {"checkpoint": (2, 4), "kill": (3,), "stop": (3,)}.get(story, ())
    if rank == 0 and step in saved:
        file = Path(f"step{step}.ckpt")
        ms.save_checkpoint(net, str(file))
        monitor.save_state(file)
        monitor.save_manifest(file)
    shared = story in ("parts", "labels")
    if story in ("damage", "checkpoint", "parts", "labels") and step == 3 and rank == (1 if shared else last):
        weight = net.first.weight if shared else net.last.weight
        bits = weight.asnumpy().copy()
        bits.view(np.uint32)[0, 5] ^= 1 << 23  # a factor of two, which rounding does not explain
        weight.copy_(Tensor(bits))
monitor.close()
