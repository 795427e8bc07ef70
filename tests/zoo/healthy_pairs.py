"""Healthy runs of one kind of training, dumped twice, and whom a comparison of the two accuses."""

import json
import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import mindspore as ms
import numpy as np
from kinds import KINDS
from mindspore import Tensor, nn, ops
from trainings import IN_FLOAT32, Outer, WithLoss

from asd.dumps.compare.runs import compare_runs
from asd.dumps.formats.request import Request
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger

LEVELS = ("L0", "L1", "mix")
TASKS = {"tensors": {"task": "tensor"}, "CRC32": {"task": "md5"}, "statistics": {"task": "statistics"}}


def dump(kind: str, precision: str, level: str, folder: Path) -> None:
    """Two steps, again and again from the beginning, once a task."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_seed(7)
    np.random.seed(7)  # noqa: NPY002 - the generator that nets draw from
    chosen = KINDS[kind]
    network = chosen.network()
    if precision == "float16":
        network.to_float(ms.float16)
        for _, cell in network.cells_and_names():
            if isinstance(cell, IN_FLOAT32):
                cell.to_float(ms.float32)
    net = WithLoss(Outer(network), chosen.loss())
    step = nn.TrainOneStepCell(net, chosen.optimizer(net.trainable_params()))
    step.set_train()
    begin = [(each, each.asnumpy().copy()) for each in step.get_parameters()]
    for name, settings in TASKS.items():
        for parameter, value in begin:
            ops.assign(parameter, Tensor(value))  # in PyNative nobody updates it any more after `set_data`
            parameter.asnumpy()  # waits for it
        random = np.random.default_rng(7)
        debugger = PrecisionDebugger(DebuggerConfig.of({**settings, "level": level, "dump_path": str(folder / name)}))
        for _ in range(2):
            batch = [Tensor(each) for each in chosen.batch(random)]
            debugger.start(net)
            step(*batch)
            debugger.stop()
            debugger.step()


def of_another_tool(folder: Path) -> None:
    """A dump that does not say who wrote it, as those of msprobe."""
    for path in folder.rglob("dump.json"):
        content = json.loads(path.read_text())
        path.write_text(json.dumps({key: value for key, value in content.items() if key != "tool"}))


def accused(kind: str, precision: str, folder: Path) -> list[str]:
    """Who is, in words."""
    for level, run in product(LEVELS, ("run", "golden")):
        dump(kind, precision, level, folder / level / run)
    pairs = [(f"{level}/run/{task}", f"{level}/golden/{task}") for level, task in product(LEVELS, TASKS)]
    found = [each for pair in pairs if (each := _answer(folder, *pair))]
    for level in LEVELS:
        of_another_tool(folder / level / "golden")
    return found + [f"another tool: {each}" for pair in pairs if (each := _answer(folder, *pair))]


def _answer(folder: Path, tested: str, trusted: str) -> str:
    outcome: Any = compare_runs(Request(folder / tested, folder / trusted), folder / "out")
    return "" if outcome.first is None else f"{tested} and {trusted}: {outcome.sentence}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(accused(sys.argv[1], sys.argv[2], Path(name))))
