"""The trainings of `recovery.py`; each rank is a process of its own, started by msrun.

`_recovery_training.py job STEPS EVERY SAVES FAULT ...` trains, saves every so many steps, and with SAVES=1 once more
when a refused update ends it. A FAULT is `device=1:fault`, see `asd.injection`: the device has it in every attempt.
`_recovery_training.py faults SEED COUNT` goes on after COUNT random faults, each on a random rank, every second step.
Prints JSON lines: what happened in a step, and what was there in the end.
"""

import json
import os
import sys
import time
from pathlib import Path

import mindspore as ms
import numpy as np
from _host_fault import apply, gradient_fault
from mindspore import Tensor, nn
from mindspore.communication import get_group_size, get_rank, init

from asd import AnomalyDetected, Config, Event
from asd.demo.llama import digest
from asd.injection import Fault
from asd.operators import StepMonitor, disable
from asd.operators.drill.inject import FaultInjector, Faulty, taps
from asd.operators.resume import checkpoint_to_resume, resumed_step
from asd.rundir.manifest import Health, write_manifest
from asd.verdict import Level

SITES = ("first_norm", "middle_norm", "last_norm")


class Net(nn.Cell):
    """Three blocks, each with a checked norm; the loss is a mean square."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Dense(16, 16), nn.LayerNorm((16,))
        self.middle, self.middle_norm = nn.Dense(16, 16), nn.LayerNorm((16,))
        self.last, self.last_norm = nn.Dense(16, 16), nn.LayerNorm((16,))
        self.head = nn.Dense(16, 1)

    def construct(self, x, y):
        x = self.first_norm(self.first(x))
        x = x + self.middle_norm(self.middle(x))
        x = x + self.last_norm(self.last(x))
        return ((self.head(x) - y) ** 2).mean()


def batch_of(step: int, rank: int) -> tuple[Tensor, Tensor]:
    """The same in every attempt, whatever device works on it."""
    random = np.random.default_rng([step, rank])
    return Tensor(random.normal(size=(8, 16)).astype(np.float32)), Tensor(np.ones((8, 1), np.float32))


def build() -> tuple[Net, nn.Adam]:
    """The network and its optimizer, alike on all ranks."""
    disable()  # the injector strikes behind the checks of cells
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    init()
    ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    ms.set_seed(1)
    np.random.seed(1)  # noqa: NPY002 - MindSpore draws weights from the global generator
    net = Net()
    return net, nn.Adam(net.trainable_params(), 1e-2)


def tell(**what: object) -> None:
    """One line for the benchmark."""
    print(json.dumps(what), flush=True)


def job(steps: int, every: int, saves: bool, faults: list[str]) -> None:
    """Trains as a job of `asd run --ranks` does."""
    net, optimizer = build()
    config, rank = Config.of_process(), get_rank()
    folder = Path(config.run_dir) / "checkpoints"
    checkpoint = checkpoint_to_resume(folder, rank=rank)
    if checkpoint is not None:
        saved = ms.load_checkpoint(str(checkpoint))
        ms.load_param_into_net(optimizer, saved)
        ms.load_param_into_net(net, saved)
    monitor = StepMonitor(config, resume_from=checkpoint)
    monitor.attach(net, optimizer)
    begin = resumed_step(optimizer) + 1
    injectors = own_faults(faults, net, begin)
    train_step = monitor.watch_step(nn.TrainOneStepCell(net, optimizer).set_train())
    health = Health()

    def save(step: int) -> None:
        folder.mkdir(exist_ok=True, parents=True)
        file = folder / f"step{step}.ckpt"
        monitor.save_state(file)
        if rank == 0:  # every rank has rules of its own, but the weights are alike
            ms.save_checkpoint(optimizer, str(file))
            origin = monitor.monitor.origin
            write_manifest(file, step=step, origin=origin, health=health)

    for step in range(begin, steps + 1):
        began = time.perf_counter()
        strike(injectors)
        loss = train_step(*batch_of(step, rank))
        try:
            health_of(monitor.step(loss), health)
        except AnomalyDetected:
            if saves:  # the update was refused: the weights are those of the step before
                save(step - 1)
            raise
        tell(step=step, seconds=time.perf_counter() - began, run=config.run)
        if step % every == 0:
            save(step)
    monitor.close()
    tell(digest=digest(net, optimizer))


def own_faults(texts: list[str], net: nn.Cell, first_step: int) -> list[FaultInjector]:
    """The faults of the device that this process works on."""
    split = [text.removeprefix("device=").partition(":") for text in texts]
    mine = [Fault.parse(fault) for device, _, fault in split if device == os.environ["ASD_DEVICE"]]
    injectors = [FaultInjector(fault, first_step=first_step) for fault in mine]
    for injector in injectors:
        injector.attach(net)
    return injectors


def strike(injectors: list[FaultInjector]) -> None:
    """Lets the faults know that a step begins."""
    for injector in injectors:
        injector.begin_step()


def health_of(events: list[Event], health: Health) -> None:
    """Adds what a step has told."""
    for event in events:
        health.add(event)


def random_fault(random: np.random.Generator, step: int, ranks: int) -> Fault:
    """A fault that breaks a first-level limit, of any kind, at any checkpoint, on any rank."""
    amounts = {
        "flip": 30,
        "set": float(random.choice([np.inf, np.nan, 10 ** random.uniform(6.5, 30)])),
        "stick": 10 ** random.uniform(6.5, 30),
        "scale": 10 ** random.uniform(15, 30),
    }
    pattern = str(random.choice([*amounts]))
    return Fault(
        "gradient",
        str(random.choice(SITES)),
        pattern,
        amounts[pattern],
        step,
        rank=int(random.integers(ranks)),
        elements=int(random.integers(1, 5)),
        seed=int(random.integers(1 << 30)),
    )


class Changing:
    """A fault that is another one in each step, made by Python."""

    def __init__(self) -> None:
        self.fault: Fault | None = None

    def strike(self, array: np.ndarray) -> np.ndarray:
        return array if self.fault is None else apply(self.fault, array)


def faults(seed: int, count: int) -> None:
    """Trains on through `count` random faults, and tells whom each rank accuses."""
    net, optimizer = build()
    monitor = StepMonitor(Config.of_process())
    monitor.attach(net, optimizer)
    found = {site: Changing() for site in SITES}
    for site, (holder, attribute) in taps(net).items():
        if site in found:
            setattr(holder, attribute, Faulty(getattr(holder, attribute), gradient_fault(found[site].strike)))
    train_step = nn.TrainOneStepCell(net, optimizer).set_train()
    random, rank, ranks = np.random.default_rng(seed), get_rank(), get_group_size()
    for step in range(1, 2 * count + 1):
        fault = random_fault(random, step, ranks) if step % 2 == 0 else None
        for site, each in found.items():
            each.fault = fault if fault is not None and site == fault.where and fault.rank == rank else None
        loss = train_step(*batch_of(step, rank))
        first = [event for event in monitor.step(loss) if event.level is Level.ERROR]  # the second level accuses nobody
        kinds = sorted({event.kind for event in first if event.kind in ("anomaly", "follower")})
        tell(step=step, rank=rank, kinds=kinds, victim=fault.rank if fault else None, fault=str(fault or ""))
    monitor.close()


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "job":
        job(int(words[0]), int(words[1]), words[2] == "1", words[3:])
    else:
        faults(int(words[0]), int(words[1]))
