"""How often the first wrong operator is named right: seeded faults in one step of a small Llama, in PyNative.

    python benchmarks/first_wrong.py                       300 faults
    python benchmarks/first_wrong.py --faults 30 --json out.json

A third of the faults strikes the output of a call, a third the gradient of its first input, a third a weight, each by
one unit in the last place, by a part in a thousand, or by setting an element to 1000 or a million. The step is recorded
as `asd.operators.rerun.narrowing` records it, and its answer is right when it names the call that was struck, or for a
weight says that it is one, at the first call that uses it. `golden` compares with a healthy run of the step, as a
sibling's replay is; `alone` has no such run and makes each recorded call again by itself, which can't tell a wrong
weight.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor

from asd.dumps.compare.comparison import Options, compare_runs
from asd.dumps.compare.request import Request
from asd.dumps.formats.dump_folder import read_dump
from asd.dumps.formats.slots import split_name
from asd.injection import Fault
from asd.operators.debugger.hooks.session import Session
from asd.operators.drill import inject, workload
from asd.operators.rerun import narrowing
from asd.operators.rerun.recheck import make_again

KINDS = ("forward", "backward", "weight")
AMOUNTS = ("flip=0", "scale=1.001", "set=1000", "set=1000000")
TINY = workload.Workload(hidden=16, layers=1, heads=2, intermediate=32, sequence=8, batch=2)


class Struck(Session):
    """Records a step in which one call computes wrongly."""

    target = ("", "")  # name of the forward entry, and what is struck
    strike = None

    def call(self, label, run, args, kwargs, **more):
        name = label.name("forward", self._calls[label.counted])
        chosen, kind = Struck.target
        if name == chosen and kind == "forward":
            corrupt = inject._OutputFault(Struck.strike)
            return super().call(label, lambda *a, **k: _first(run(*a, **k), corrupt), args, kwargs, **more)
        if name == chosen and kind == "backward":
            corrupt = inject._gradient_fault(Struck.strike)
            return super().call(label, lambda x, *a, **k: run(corrupt(x), *a, **k), args, kwargs, **more)
        return super().call(label, run, args, kwargs, **more)


def _first(output, change):
    return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)


def record(net, step, folder):
    """Makes the step once; its dump is in `folder`."""
    with narrowing.recorded(net, folder, narrowing._config("apis")):
        step()[0].asnumpy()


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
    outcome = compare_runs(Request(tested, trusted), folder, Options(by="bits"))
    shutil.rmtree(folder, ignore_errors=True)
    return outcome.pairs[0].divergence


def strike_of(fault, log):
    """Changes an array as the fault says; in another element where that one would stay the same."""

    def strike(array):
        array = np.asarray(array, np.float32)  # MindSpore hands over a tensor without dimensions as a float
        for seed in range(fault.seed, fault.seed + 50):
            changed = Fault(fault.target, fault.where, fault.pattern, fault.amount, 1, seed=seed).apply(array, 1)
            if changed.tobytes() != array.tobytes():
                log.append(fault.amount)
                return changed
        return array

    return strike


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
        self.calls = candidates(read_dump(folder / "golden" / "dump.json"))

    def strike(self, number):
        """Makes the step with one fault and counts whether it was named right."""
        kind, random = KINDS[number % 3], np.random.default_rng(number)
        pattern, _, amount = AMOUNTS[number // 3 % len(AMOUNTS)].partition("=")
        struck = []
        fault = Fault("output", "x", pattern, float(amount), 1, seed=number)
        Struck.strike = staticmethod(strike_of(fault, struck))
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
            self.counts[kind, "not struck"] += 1
        shutil.rmtree(tested)

    def _with_wrong_weight(self, weight, tested):
        healthy = weight.asnumpy().copy()
        weight.copy_(Tensor(Struck.strike(healthy)))
        record(self.net, self.step, tested)
        weight.copy_(Tensor(healthy))
        return weight.name

    def _judge(self, number, kind, expected):
        tested, out, alone = self.folder / "tested", self.folder / "out", self.folder / "alone"
        found = {"golden": answer(tested, self.folder / "golden", out)}
        if kind != "weight":
            make_again(tested / "dump.json", alone)
            found["alone"] = answer(tested, alone, out)
            shutil.rmtree(alone)
        for how, divergence in found.items():
            right = divergence is not None and (
                divergence.kind == "weight" if kind == "weight" else divergence.call == expected
            )
            self.counts[how, kind, "right" if right else "wrong"] += 1
            if not right:
                named = divergence.sentence if divergence is not None else "nothing"
                self.wrong.append({"fault": number, "how": how, "struck": expected, "named": named})
                print(f"{number} {how}: struck {expected}, named {named}", flush=True)


def main() -> None:
    """Runs the faults and prints what was named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--first", type=int, default=0, help="number of the first fault")
    parser.add_argument("--json", type=Path, help="write the figures there")
    args = parser.parse_args()
    workload.use_mode("pynative")
    net, _ = workload.build(TINY)
    weights = net.trainable_params()
    gradients = ms.value_and_grad(net, None, weights)
    batch = Tensor(next(workload.batches(TINY)))
    narrowing.Session = Struck
    trial = Trial(net, weights, lambda: gradients(batch))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        trial.begin(Path(name))
        for number in range(args.first, args.first + args.faults):
            trial.strike(number)
            if number % 10 == 9:
                print(number + 1, dict(trial.counts), flush=True)
    counts, wrong, calls = trial.counts, trial.wrong, trial.calls
    figures = {" ".join(key): count for key, count in sorted(counts.items())}
    for key, count in figures.items():
        print(f"{key:<28}{count}")
    shown = ", ".join(f"{len(names)} {kind} calls" for kind, names in calls.items())
    print(f"{time.perf_counter() - began:.0f} s; {shown}")
    if args.json is not None:
        args.json.write_text(json.dumps({"counts": figures, "wrong": wrong}, indent=1) + "\n")


if __name__ == "__main__":
    main()
