"""A training on two devices and a spare: device 1 computes wrongly, is left out, and the training goes on without it.

What a training has to do for it is in `train`; the rest starts it and tells the story.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = 10


def train():
    import mindspore as ms
    import numpy as np
    from mindspore import nn
    from mindspore.communication import get_rank, init

    from asd.injection import Fault
    from asd.operators import StepMonitor, disable
    from asd.operators.inject import FaultInjector
    from asd.operators.resume import checkpoint_to_resume

    disable()  # for the drill: `asd run` brings checks along, but the injector strikes behind those of StepMonitor
    ms.set_device("CPU")
    init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    ms.set_seed(1)
    net = nn.SequentialCell(nn.Dense(8, 8), nn.LayerNorm((8,)), nn.Dense(8, 1))
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    folder = Path(os.environ["ASD_RUN_DIR"]).absolute() / f"checkpoints-{get_rank()}"
    checkpoint = checkpoint_to_resume(folder, rank=get_rank())
    if checkpoint is not None:
        ms.load_param_into_net(optimizer, ms.load_checkpoint(str(checkpoint), net))
    done = int(optimizer.global_step.asnumpy()[0])
    rows = np.random.default_rng(get_rank()).normal(size=(4 * STEPS, 8)).astype(np.float32)[4 * done :]
    data = ms.dataset.GeneratorDataset([(row, row[:1]) for row in rows], ["x", "y"], shuffle=False).batch(4)
    keep = ms.train.ModelCheckpoint("net", str(folder), ms.train.CheckpointConfig(save_checkpoint_steps=2))
    callbacks = [StepMonitor(), keep]
    if os.environ["ASD_DEVICE"] == "1":  # a drill: this device is broken from step 6 on
        callbacks.append(FaultInjector(Fault.parse("gradient:1:flip=30:step=6:duration=1000"), first_step=done + 1))
    if done < STEPS:  # else only what comes after the last step failed
        ms.train.Model(net, nn.MSELoss(), optimizer).train(1, data, callbacks=callbacks, dataset_sink_mode=False)
    print(f"made step {int(optimizer.global_step.asnumpy()[0])} on device {os.environ['ASD_DEVICE']}")


def asd(place, *words):
    settings = {**os.environ, "ASD_RUN": "job", "ASD_RUN_DIR": "asd_run", "GLOG_v": "3"}
    command = [sys.executable, "-m", "asd", *words]
    return subprocess.run(command, cwd=place, env=settings, capture_output=True, text=True, check=False)


if sys.argv[1:] == ["train"]:
    train()
    sys.exit()
with tempfile.TemporaryDirectory() as place:
    program = [sys.executable, Path(__file__).resolve(), "train"]
    job = asd(place, "run", "--ranks", "2", "--spares", "1", "--", *program)
    story = [line for line in job.stderr.splitlines() if line.startswith("asd: ")]
    ends = [line for line in job.stdout.splitlines() if "made step" in line]
    devices = asd(place, "devices").stdout.splitlines()
    print("\n".join([*story, *sorted(ends), *devices]).replace(f"{place}/", ""))
sys.exit(job.returncode)
