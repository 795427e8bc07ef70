"""One training with the tiers on, and the alarms it raised."""

from __future__ import annotations

import tempfile
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from asd import Config, Level
from asd.operators import StepMonitor
from benchmarks.false_alarms.trainings import TRAININGS

__all__ = ["watch"]


class _Step(nn.Cell):
    def __init__(self, loss: nn.Cell, optimizer: nn.Cell, *, clip: bool) -> None:
        super().__init__()
        self.optimizer, self.clip = optimizer, clip
        self.differentiated = ops.value_and_grad(loss, None, optimizer.parameters)

    def construct(self, x, y):
        loss, gradients = self.differentiated(x, y)
        if self.clip:
            gradients = ops.clip_by_global_norm(gradients, 1.0)
        return ops.depend(loss, self.optimizer(gradients))


def watch(name: str, seed: int, clip: bool) -> dict[str, Any]:
    """Trains, and returns what was checked and what raised an alarm.

    Args:
        name: A key of `TRAININGS`.
        seed: Of weights and data.
        clip: Whether the global norm of the gradients is clipped to 1.
    """
    ms.set_context(mode=ms.GRAPH_MODE, runtime_num_threads=1)
    ms.set_seed(seed)
    loss, optimizer, batches = TRAININGS[name](np.random.default_rng(seed))
    loss.set_train()
    events, losses, checks = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        config = Config(protection="document", enable=1, rule="adaptive", on_anomaly="log", run_dir=folder)
        monitor = StepMonitor(config, sinks=[events.append])
        monitor.attach(loss, optimizer)
        step = _Step(loss, optimizer, clip=clip)
        for x, y in batches:
            value = step(Tensor(x), Tensor(y))
            monitor.step(value)
            checks += len(monitor.monitor.readings)
            losses.append(float(value.asnumpy()))
        monitor.close()
    first, second = ([each for each in events if each.level is level] for level in (Level.ERROR, Level.WARNING))
    return {
        "training": name,
        "seed": seed,
        "clip": clip,
        "checks": checks,
        "steps": len(losses),
        "first_level": len(first),
        "first_level_steps": sorted({each.step for each in first}),
        "second_level": len(second),
        "second_level_steps": len({each.step for each in second}),
        "loss_at_first": sum(losses[:10]) / 10,
        "loss_in_the_end": sum(losses[-10:]) / 10,
        "example": f"step {first[0].step}, {first[0].checkpoint}: {first[0].reason}" if first else "",
    }
