"""A small training for `asd run --ranks`: `supervised.py STEPS FAULT...`; prints `STEP n loss` after each step.

Each FAULT is `device=1:fault`: it strikes when the rank computes on that logical device, and `device=any` on every one.
`torn=n` kills rank 0 in the middle of writing the checkpoint of step n, in the first attempt.
`once=1` restricts faults to the first attempt, `replay=1` lets a step be made again, `pause=s` sleeps so long after
each step. Every second step is saved by rank 0.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_group_size, get_rank, init
from small_net import Net

from asd import AnomalyDetected, Config
from asd.demo.llama import digest
from asd.injection import Fault
from asd.operators import StepMonitor, disable
from asd.operators.drill.inject import FaultInjector
from asd.operators.resume import checkpoint_to_resume, resumed_step
from asd.rundir.manifest import Health, write_manifest

steps, words = int(sys.argv[1]), sys.argv[2:]
options = dict(word.split("=", 1) for word in words if not word.startswith("device="))
disable()  # the injector strikes behind the checks of cells
ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_device("CPU")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
rank, device, config = get_rank(), os.environ["ASD_DEVICE"], Config.of_process()
first_attempt = "+" not in config.run
folder = Path(config.run_dir) / "checkpoints"


ms.set_seed(1)
np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator
net = Net()
optimizer = nn.Adam(net.trainable_params(), 1e-2)
checkpoint = checkpoint_to_resume(folder, rank=rank)
if checkpoint is not None:
    saved = ms.load_checkpoint(str(checkpoint))
    ms.load_param_into_net(optimizer, saved)
    ms.load_param_into_net(net, saved)
monitor = StepMonitor(config, resume_from=checkpoint)
monitor.attach(net, optimizer)
begin = resumed_step(optimizer) + 1
injectors = []
for word in words:
    if word.startswith("device=") and (first_attempt or not options.get("once")):
        where, _, fault = word.removeprefix("device=").partition(":")
        if where in (device, "any"):
            injectors.append(FaultInjector(Fault.parse(fault), first_step=begin))
            injectors[-1].attach(net)
train_step = nn.TrainOneStepCell(net, optimizer).set_train()
if options.get("replay"):
    train_step = monitor.watch_step(train_step)
health = Health()


def save(step):
    """Every rank has rules of its own, but the weights are alike."""
    folder.mkdir(exist_ok=True, parents=True)
    file = folder / f"step{step}.ckpt"
    monitor.save_state(file)
    if rank:
        return
    ms.save_checkpoint(optimizer, str(file))
    if first_attempt and step == int(options.get("torn", 0)):
        os.truncate(file, file.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
    origin = monitor.monitor.origin
    write_manifest(file, step=step, origin=origin, health=health)


loss = Tensor(float("nan"))  # where an attempt has nothing left to do
for step in range(begin, steps + 1):
    for injector in injectors:
        injector.begin_step()
    batch = np.random.default_rng([step, rank]).normal(size=(4, 8)).astype(np.float32)
    target = np.ones((4, 1), np.float32)
    loss = train_step(Tensor(batch), Tensor(target))
    try:
        for event in monitor.step(loss):
            health.add(event)
    except AnomalyDetected:
        print(f"STOP {step} on device {device}", flush=True)
        raise
    print(f"STEP {step} {float(loss.asnumpy()):.9g}", flush=True)
    if step % 2 == 0:
        save(step)
    time.sleep(float(options.get("pause", 0)))
monitor.close()
told = {"digest": digest(net, optimizer), "loss": float(loss.asnumpy())}
print("DONE " + json.dumps(told | {"ranks": get_group_size(), "device": device}))
