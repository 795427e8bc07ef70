"""One rank of such a job: `job.py STEPS SEED VICTIM PATTERN CHANCE`; started by msrun.

The Llama of one layer in data parallel, with `NPU_ASD_ENABLE=1` and `ASD_ON_ANOMALY=skip`. Every matrix product of the
victim, forward and backward, is struck with a chance, between the operator and its check, in repeated steps too. Prints
`DEVICE` and a JSON object: the step of each wrong result, and when each step ended with which loss.
"""

import gc
import json
import sys
import time

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_group_size, get_rank, init

from asd import Config
from asd.injection import Fault
from asd.operators import StepMonitor
from asd.operators.drill.inject import numpy_operator
from asd.operators.drill.job_workload import rows
from asd.operators.drill.workload import SMALL, build
from asd.operators.recompute.product import CheckedProduct

FIRST = 50
"""The first step with a fault: the first steps of a run check more than the others."""
steps, seed, victim = map(int, sys.argv[1:4])
fault = Fault.parse(f"output:.:{sys.argv[4]}:step=1:seed={seed}:chance={sys.argv[5]}")
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
rank = get_rank()


class Wrong:
    """The faulty unit.

    Attributes:
        step: The present one.
        steps: Of each wrong result its step.
    """

    def __init__(self) -> None:
        self.step, self.calls = 0, 0
        self.steps: list[int] = []

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """What the device gives in place of `array`."""
        if rank != victim or self.step < FIRST:
            return array
        self.calls += 1
        now = fault.of_call(self.calls)
        if now is None:
            return array
        found = now.apply(array, self.step)
        if found.tobytes() != np.ascontiguousarray(array).tobytes():
            self.steps.append(self.step)
        return found


class Struck(nn.Cell):
    """A product of this device."""

    def __init__(self, op: nn.Cell, wrong: Wrong) -> None:
        super().__init__(auto_prefix=False)
        self.op, self.spoil = op, numpy_operator(wrong)

    def construct(self, a, b):
        return self.spoil(self.op(a, b))


workload = SMALL.with_(layers=1, seed=seed)
net, optimizer = build(workload)
monitor = StepMonitor(Config(enable=1, on_anomaly="skip"))
train_step = nn.TrainOneStepCell(net, optimizer).set_train()
monitor.attach(train_step, optimizer)
wrong = Wrong()
for each in [one for one in gc.get_objects() if type(one) is CheckedProduct]:
    for name in ("multiply", "multiply_dx", "multiply_dw"):
        setattr(each.parts, name, Struck(getattr(each.parts, name), wrong))
watched = monitor.watch_step(train_step)
ended, losses = [], []
source = rows(workload, rank, get_group_size())
for step in range(1, steps + 1):
    wrong.step = step
    tokens, _ = next(source)
    loss = watched(Tensor(tokens))
    monitor.step(loss)
    outputs = monitor.outputs_again if getattr(monitor, "outputs_again", None) is not None else loss
    losses.append(float((outputs[0] if isinstance(outputs, tuple) else outputs).asnumpy()))
    ended.append(time.time())
monitor.close()
status = monitor.monitor.status
print(
    "DEVICE "
    + json.dumps(
        {
            "rank": rank,
            "wrong": wrong.steps,
            "calls": wrong.calls,
            "losses": losses,
            "ended": ended,
            "checks": status.checks,
            "problems": status.problems,
        }
    ),
    flush=True,
)
