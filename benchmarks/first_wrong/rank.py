"""One of two ranks: `rank.py FOLDER FIRST COUNT`, started by `ranks`. Rank 1 is struck, rank 0 compares both.

Both make a step of data parallel with AdamWeightDecay in PyNative; `PrecisionDebugger` dumps it at `mix` with tensors.
Prints `FOUND` and a JSON object.
"""

import json
import shutil
import sys
from collections import Counter
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import get_group_size, get_rank, init

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from asd.demo import llama as workload
from asd.demo.llama_job import rows
from asd.dumps.compare.runs import compare_runs
from asd.dumps.formats.dump_folder import read_dump
from asd.dumps.formats.request import Request
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger
from asd.operators.debugger import precision_debugger
from asd.operators.ranks.exchange import Exchange
from benchmarks.first_wrong.eager import KINDS, Struck, candidates
from benchmarks.first_wrong.strikes import AMOUNTS, TINY, judged, strike_of

folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
workload.use_mode("pynative")
init()
ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
rank, ranks = get_rank(), Exchange()
precision_debugger.Session = Struck
net, optimizer = workload.build(TINY)
step = nn.TrainOneStepCell(net, optimizer).set_train()
batch = Tensor(next(rows(TINY, rank, get_group_size()))[0])
for number, weight in enumerate(net.trainable_params()):  # a new norm has ones alone
    noise = np.random.default_rng(number).normal(1.0, 0.1, weight.shape)
    ops.assign(weight, Tensor(weight.asnumpy() + 0.01 * noise.astype(np.float32)))
kept = [(each, each.asnumpy().copy()) for each in step.get_parameters()]


def record(name):
    """A step with a dump of everything, from where the first one began."""
    debugger = PrecisionDebugger(DebuggerConfig(folder / name, task="tensor", level="mix"))
    debugger.start(net)
    step(batch)
    debugger.stop()
    debugger.step()


def restore():
    """Weights and state are what they were."""
    for parameter, value in kept:
        ops.assign(parameter, Tensor(value))
        parameter.asnumpy()


def answer():
    """The first pair of ranks that part, or any."""
    outcome = compare_runs(Request(folder / "tested", folder / "golden"), folder / "out")
    shutil.rmtree(folder / "out", ignore_errors=True)
    return outcome.first or outcome.pairs[0]


def strike(number):
    """One fault on rank 1; what was struck, empty where nothing changed."""
    kind, random = KINDS[number % 3], np.random.default_rng(number)
    struck = []
    Struck.strike = staticmethod(strike_of(number, AMOUNTS[number // 3 % len(AMOUNTS)], struck))
    expected = ""
    if rank == 1 and kind == "weight":
        weights = net.trainable_params()
        weight = weights[random.integers(len(weights))]
        ops.assign(weight, Tensor(Struck.strike(weight.asnumpy())))
        expected = weight.name
    elif rank == 1:
        expected = calls[kind][random.integers(len(calls[kind]))]
        Struck.target = (expected.replace(".backward", ".forward"), kind)
    record("tested")
    Struck.target = ("", "")
    restore()
    return kind, ranks.tell(expected=expected if struck else "")[1]["expected"]


record("golden")
restore()
record("tested")
restore()
ranks.tell()
calls = candidates(read_dump(folder / "golden" / "step0" / f"rank{rank}" / "dump.json"))
counts, wrong = Counter(), []
if rank == 0:
    assert answer().divergence is None
for number in range(first, first + count):
    ranks.tell()
    if rank == 0:
        shutil.rmtree(folder / "tested")
    ranks.tell()
    kind, expected = strike(number)
    if rank == 0 and not expected:
        counts[f"{kind} not struck"] += 1
    elif rank == 0:
        pair = answer()
        found = pair.divergence
        verdict = judged(found, kind, expected, rank_right=pair.rank == 1)
        counts[f"{kind} tensors {verdict}"] += 1
        if verdict != "right":
            said = found.sentence if found is not None else "nothing"
            wrong.append({"fault": number, "struck": expected, "rank": pair.rank, "named": said})
print("FOUND " + json.dumps({"rank": rank, "counts": counts, "wrong": wrong}), flush=True)
