"""Trainings without a word of detection, in every style: `loops.py STYLE MODE STEPS [BAD_STEP]`."""

import json
import os
import signal
import sys

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.parallel.auto_parallel import AutoParallel
from small_net import Net

style, mode, steps, bad_step = sys.argv[1], sys.argv[2], int(sys.argv[3]), int((*sys.argv, "0")[4])
ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
ms.set_device("CPU")
ms.set_seed(1)
np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator


def batch(step):
    generator = np.random.default_rng(step)
    factor = 1e12 if step == bad_step else 1.0
    return generator.normal(size=(4, 8)).astype(np.float32), np.full((4, 1), factor, np.float32)


def weight():
    return net.norm.gamma.asnumpy().tolist()


net = Net()
net.set_train()
optimizer = nn.SGD(net.trainable_params(), 1e-2)
losses, before = [], None


def model_train():
    class Recorder(ms.train.Callback):
        def on_train_step_begin(self, run_context):
            remember(len(losses) + 1)

        def on_train_step_end(self, run_context):
            losses.append(float(run_context.original_args().net_outputs.asnumpy()))

    data = ms.dataset.GeneratorDataset([batch(step) for step in range(1, steps + 1)], ["x", "y"], shuffle=False)
    ms.train.Model(net, optimizer=optimizer).train(1, data, callbacks=Recorder(), dataset_sink_mode=False)


def remember(step):
    global before
    if step == bad_step:
        before = weight()


def loop(train_step):
    for step in range(1, steps + 1):
        remember(step)
        losses.append(float(train_step(*map(Tensor, batch(step))).asnumpy()))


def functional(update=optimizer):
    value_and_grad = ms.value_and_grad(net, None, optimizer.parameters)

    def train_step(x, y):
        loss, gradients = value_and_grad(x, y)
        update(gradients)
        return loss

    return train_step


def assign(gradients):
    for weight, gradient in zip(optimizer.parameters, gradients, strict=True):
        ops.assign_sub(weight, 1e-2 * gradient)


class OwnCell(nn.Cell):
    def __init__(self, step):
        super().__init__(auto_prefix=False)
        self.step = step

    def construct(self, x, y):
        return self.step(x, y)


if style == "model":
    model_train()
elif style == "cell":
    loop(nn.TrainOneStepCell(net, optimizer).set_train())
elif style == "wrapped":
    loop(AutoParallel(nn.TrainOneStepCell(net, optimizer).set_train()))
elif style == "functional":
    loop(functional())
elif style == "assigned":
    loop(functional(assign))
elif style == "own_cell":
    loop(OwnCell(functional()).set_train())
elif style in ("jitted", "killed"):
    loop(ms.jit(functional()))
    if style == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
print(json.dumps({"losses": losses, "before": before, "after": weight()}))
