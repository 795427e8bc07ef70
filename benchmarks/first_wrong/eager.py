"""Seeded faults in one step of a small Llama, in PyNative.

A third of the faults strikes the output of a call, a third the gradient of its first input, a third a weight. The step
is compared with a healthy run of it. An answer is right when it names the call that was struck, or for a weight names
that weight, at a call that uses it.
"""

import shutil
from collections import Counter
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor

from asd.demo import llama as workload
from asd.dumps.compare.runs import compare_runs
from asd.dumps.formats.dump_folder import read_dump
from asd.dumps.formats.request import Request
from asd.dumps.formats.slots import split_name
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger
from asd.operators.debugger import precision_debugger
from asd.operators.debugger.hooks.session import Session
from benchmarks._host_fault import gradient_fault, output_fault
from benchmarks.first_wrong.strikes import AMOUNTS, TINY, judged, strike_of

KINDS = ("forward", "backward", "weight")


class Struck(Session):
    """Records a step in which one call computes wrongly."""

    target = ("", "")  # name of the forward entry, and what is struck
    strike = None

    def call(self, label, run, args, kwargs, **more):
        name = label.name("forward", self._calls[label.text])
        chosen, kind = Struck.target
        if name == chosen and kind == "forward":
            corrupt = output_fault(Struck.strike)
            return super().call(label, lambda *a, **k: _first(run(*a, **k), corrupt), args, kwargs, **more)
        if name == chosen and kind == "backward":
            corrupt = gradient_fault(Struck.strike)
            return super().call(label, lambda x, *a, **k: run(corrupt(x), *a, **k), args, kwargs, **more)
        return super().call(label, run, args, kwargs, **more)


def _first(output, change):
    return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)


def record(net, step, folder):
    """Makes the step once; its dump is in `folder`."""
    debugger = PrecisionDebugger(DebuggerConfig(folder, task="tensor", level="mix"))
    debugger.start(net)
    step()[0].asnumpy()
    debugger.stop()


def candidates(dump):
    """Calls whose first output, or the gradient of whose first input, is a floating-point tensor, by kind."""
    found = {"forward": [], "backward": []}
    for name, entry in dump.entries.items():
        direction = split_name(name)[1]
        outputs = [slot for slot in entry.slots if slot.suffix == "output.0" and slot.dtype == "Float32"]
        if name.startswith("Cell.") or direction not in found or not outputs or outputs[0].data_name is None:
            continue
        if any(slot.state == "input" and slot.data_name is not None for slot in entry.slots):
            found[direction].append(name)
    return found


def answer(tested, trusted, folder):
    """Where both part."""
    outcome = compare_runs(Request(tested, trusted), folder)
    shutil.rmtree(folder, ignore_errors=True)
    return outcome.pairs[0].divergence


class Trial:
    """One step of one network, struck again and again."""

    def __init__(self, net, weights, step):
        self.net, self.weights, self.step = net, weights, step
        self.counts, self.wrong = Counter(), []

    def begin(self, folder):
        """Records the healthy step, which repeats itself."""
        self.folder = folder
        for number, weight in enumerate(self.weights):  # a new norm has ones alone, a trained one has not
            noise = np.random.default_rng(number).normal(1.0, 0.1, weight.shape)
            weight.copy_(Tensor(weight.asnumpy() + 0.01 * noise.astype(np.float32)))
        record(self.net, self.step, folder / "golden")
        record(self.net, self.step, folder / "tested")
        assert answer(folder / "tested", folder / "golden", folder / "out") is None
        shutil.rmtree(folder / "tested")
        self.calls = candidates(read_dump(folder / "golden" / "step0" / "rank0" / "dump.json"))

    def strike(self, number):
        """Makes the step with one fault and counts whether it was named right."""
        kind, random = KINDS[number % 3], np.random.default_rng(number)
        struck = []
        Struck.strike = staticmethod(strike_of(number, AMOUNTS[number // 3 % len(AMOUNTS)], struck))
        tested = self.folder / "tested"
        if kind == "weight":
            expected = self._with_wrong_weight(self.weights[random.integers(len(self.weights))], tested)
        else:
            expected = self.calls[kind][random.integers(len(self.calls[kind]))]
            Struck.target = (expected.replace(".backward", ".forward"), kind)
            record(self.net, self.step, tested)
            Struck.target = ("", "")
        if struck:
            self._judge(number, kind, expected)
        else:
            self.counts[f"{kind} not struck"] += 1
        shutil.rmtree(tested)

    def _with_wrong_weight(self, weight, tested):
        healthy = weight.asnumpy().copy()
        weight.copy_(Tensor(Struck.strike(healthy)))
        record(self.net, self.step, tested)
        weight.copy_(Tensor(healthy))
        return weight.name

    def _judge(self, number, kind, expected):
        divergence = answer(self.folder / "tested", self.folder / "golden", self.folder / "out")
        verdict = judged(divergence, kind, expected)
        self.counts[f"{kind} tensors {verdict}"] += 1
        if verdict != "right":
            said = divergence.sentence if divergence is not None else "nothing"
            self.wrong.append({"fault": number, "struck": expected, "named": said})
            print(f"{number}: struck {expected}, named {said}", flush=True)


def run(faults: range, folder: Path) -> dict[str, object]:
    """Strikes the step, and counts."""
    workload.use_mode("pynative")
    net, _ = workload.build(TINY)
    weights = net.trainable_params()
    gradients = ms.value_and_grad(net, None, weights)
    batch = Tensor(next(workload.batches(TINY)))
    precision_debugger.Session = Struck
    trial = Trial(net, weights, lambda: gradients(batch))
    trial.begin(folder)
    for number in faults:
        trial.strike(number)
        if number % 10 == 9:
            print(number + 1, dict(trial.counts), flush=True)
    print(", ".join(f"{len(names)} {kind} calls" for kind, names in trial.calls.items()))
    return {"counts": dict(sorted(trial.counts.items())), "wrong": trial.wrong}
