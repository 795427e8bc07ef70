"""One rank of a job to try things on: `asd run --ranks 2 -- python -m asd.demo.llama_job STEPS ...`.

It trains the Llama of `asd.demo.llama` in data parallel: each rank takes its rows of every batch, rank 0
writes the checkpoints. A fault can be bound to a device, like a broken processor, whichever rank runs there. A batch
can be poisoned, as by a broken file. It prints `STEP number loss` per step, and at its end `DONE` with a JSON object:
SHA-256 over weights and optimizer, and the loss, null where the checkpoint was of the last step.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.communication import get_group_size, get_rank, init

from asd.config import Config
from asd.demo.llama import SMALL, Workload, batches, build, digest, use_mode
from asd.errors import AnomalyDetected
from asd.injection import Fault
from asd.operators.drill.inject import FaultInjector
from asd.operators.monitor.step_monitor import StepMonitor
from asd.operators.resume import checkpoint_to_resume, resumed_step
from asd.operators.start.enable import disable

_COLUMNS = ["input_ids", "loss_mask"]
_SIZE = replace(SMALL, layers=1)
"""Small, since every start of the job compiles the network, which takes most of the time."""


class _Weighted(nn.Cell):
    """The Llama, with a weight for the loss of each token."""

    def __init__(self, net: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.net = net

    def construct(self, input_ids, loss_mask):
        return self.net(input_ids, loss_mask=loss_mask)


class _Progress(ms.train.Callback):
    """Callback that prints the loss of every step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step: int = step
        self.loss: float | None = None

    def on_train_step_end(self, run_context: Any) -> None:
        outputs = run_context.original_args().net_outputs
        self.loss = float(Tensor(outputs[0] if isinstance(outputs, tuple) else outputs).asnumpy().reshape(-1)[0])
        self.step += 1
        print(f"STEP {self.step} {self.loss:.9g}", flush=True)


def rows(workload: Workload, rank: int, size: int, *, first: int = 0, poisoned: int = 0) -> Iterator[tuple[Any, Any]]:
    """Yields a rank's share of each batch: tokens, int32, and weights of their losses, float32 of the same shape.

    Args:
        workload: Model and data; its batch size is that of one rank.
        rank: Rank of this process.
        size: Number of ranks.
        first: Batches to skip.
        poisoned: Step whose weights are damaged on rank 0: every second one is -1, so that they add up to 0.
    """
    whole = replace(workload, batch=workload.batch * size)
    for step, batch in enumerate(batches(whole, first), start=first + 1):
        own = batch[rank * workload.batch : (rank + 1) * workload.batch]
        weights = np.ones(own.shape, np.float32)
        if step == poisoned and rank == 0:
            weights[:, ::2] = -1.0
        yield own, weights


def main(words: Sequence[str]) -> int:
    """Trains; returns exit code 1 when an anomaly ended the training, else 0."""
    options = _options().parse_args(words)
    disable()  # the monitor below checks, and the fault must come after its checks
    use_mode(options.mode)
    init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    net, optimizer = build(replace(_SIZE, seed=options.seed))
    checkpoint = checkpoint_to_resume(options.folder, rank=get_rank())
    if checkpoint is not None:
        saved = ms.load_checkpoint(str(checkpoint))
        ms.load_param_into_net(net, saved)
        ms.load_param_into_net(optimizer, saved)
    progress = _Progress(resumed_step(optimizer))
    try:
        if progress.step < options.steps:  # else a restart after a crash at the very end
            _train(net, optimizer, progress, options, checkpoint)
    except AnomalyDetected as error:
        print(f"STOP {error.event.step}", flush=True)
        return 1
    print("DONE " + json.dumps({"digest": digest(net, optimizer), "loss": progress.loss}), flush=True)
    return 0


def _train(
    net: nn.Cell, optimizer: nn.Optimizer, progress: _Progress, options: argparse.Namespace, checkpoint: Path | None
) -> None:
    rank, size, config, first = get_rank(), get_group_size(), Config.of_process(), progress.step
    callbacks: list[ms.train.Callback] = [StepMonitor(config, resume_from=checkpoint)]
    is_struck = options.fault and config.enabled and options.device == config.device
    if is_struck and not (options.once and "+" in config.run):  # a name ends in +2 from the second attempt on
        callbacks.append(FaultInjector(Fault.parse(options.fault), first + 1))
    callbacks.append(progress)
    if rank == 0:
        settings = ms.train.CheckpointConfig(save_checkpoint_steps=options.save_every, keep_checkpoint_max=5)
        callbacks.append(ms.train.ModelCheckpoint("llama", str(options.folder), settings))
    source = rows(replace(_SIZE, seed=options.seed), rank, size, first=first, poisoned=options.poisoned)
    data = ms.dataset.GeneratorDataset(list(islice(source, options.steps - first)), _COLUMNS, shuffle=False)
    ms.train.Model(_Weighted(net), optimizer=optimizer).train(1, data, callbacks=callbacks, dataset_sink_mode=False)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="job_workload", description=__doc__.split("\n")[0])
    parser.add_argument("steps", type=int, help="the last step")
    parser.add_argument(
        "--folder", type=Path, default=Path("checkpoints"), help="for checkpoints (default %(default)s)"
    )
    parser.add_argument("--save-every", type=int, default=5, help="steps between two (default %(default)s)")
    parser.add_argument("--fault", help="what goes wrong, see `asd demo --help`")
    parser.add_argument("--device", default="1", help="number of the device it is bound to (default %(default)s)")
    parser.add_argument("--once", action="store_true", help="in the first attempt of the job only")
    parser.add_argument("--poisoned", type=int, default=0, help="step whose batch is damaged on rank 0 (default none)")
    parser.add_argument("--mode", choices=("graph", "pynative"), default="graph")
    parser.add_argument("--seed", type=int, default=1)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
