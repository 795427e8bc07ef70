"""Seeded faults in compiled steps: forward and backward pass, training cell and optimizer.

A compiled graph can't be opened, but its taps hand over the memory of each tensor before anybody else reads it. So the
graph is compiled once and struck in another place each time. A fault strikes one of seven:

    forward    what a call gives
    backward   the same of its backward call
    between    what a call is given, after whoever gave it was seen
    gradient   what the optimizer is called with
    weight     a weight, before the step
    moment     a moment of the optimizer, before the step; it shows in the next one
    data       the batch

Held against is a healthy run of the same graph or, for `across`, one in PyNative.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Tensor, ops

from asd.dumps.compare.comparison import Options, Pair, compare_runs
from asd.dumps.formats.dump_folder import read_dump
from asd.dumps.pairing.request import Request
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger
from asd.operators.debugger import precision_debugger
from asd.operators.drill import workload
from benchmarks.first_wrong.strikes import AMOUNTS, judged, strike_of
from benchmarks.first_wrong.struck import WAYS, Struck, places_of, variants
from benchmarks.first_wrong.trainings import TRAININGS, Training

__all__ = ["KINDS", "Trial", "run"]

KINDS = ("forward", "backward", "between", "gradient", "weight", "moment", "data")


class Trial:
    """One training, struck again and again; its graph is compiled once.

    Args:
        training: It.
        level: Of the dumps.
        folder: For the dumps.
        twin: The same training, to be the healthy run in PyNative; None: the healthy run is one of the graph.
    """

    def __init__(self, training: Training, level: str, folder: Path, twin: Training | None = None) -> None:
        self.training, self.level, self.folder = training, level, folder
        self.counts: Counter[tuple[str, str, str]] = Counter()
        self.wrong: list[dict[str, Any]] = []
        precision_debugger.GraphCalls = Struck
        training.step.set_train()
        for number, weight in enumerate(training.net.trainable_params()):  # a new norm has ones alone
            noise = np.random.default_rng(number).normal(1.0, 0.1, weight.shape)
            weight.set_data(Tensor(weight.asnumpy() + 0.01 * noise.astype(np.float32)))
        self._run(folder / "compiled", 1)
        self._state = [(each, each.asnumpy().copy()) for each in training.step.get_parameters()]
        Struck.seen = []
        self._run(folder / "golden", 1)
        self._restore()
        self.places, Struck.seen = places_of(Struck.seen), None
        self.trusted = "golden"
        self.golden = self._healthy(folder / "golden")
        if twin is not None:
            self.trusted = self._in_pynative(twin)
            self._assert_healthy(folder / "golden")
        self.healthy = read_dump(folder / "golden" / "CRC32" / "step0" / "rank0" / "dump.json")

    def _healthy(self, folder: Path) -> list[bytes]:
        self._run(folder, 2)
        self._restore()
        self._run(self.folder / "tested", 2)
        variants(folder)
        self._assert_healthy(self.folder / "tested")
        return self.updated

    def _assert_healthy(self, folder: Path) -> None:
        if (folder / "step0").exists():
            variants(folder)
        for way, pair in self._answers(2, folder.name):
            assert pair.divergence is None, (way, pair.divergence)

    def _in_pynative(self, twin: Training) -> str:
        """Makes the healthy run there; the name of its folder."""
        workload.use_mode("pynative")
        for parameter, (_, value) in zip(twin.step.get_parameters(), self._state, strict=True):
            ops.assign(parameter, Tensor(value))  # in PyNative nobody updates it any more after `set_data`
            parameter.asnumpy()
        twin.step.set_train()
        updated, training, self.training = self.updated, self.training, twin
        self._run(self.folder / "pynative", 2)
        self.updated, self.training = updated, training
        variants(self.folder / "pynative")
        workload.use_mode("graph")
        return "pynative"

    def _run(self, folder: Path, steps: int, batch: tuple[np.ndarray, ...] | None = None) -> None:
        """Makes steps with a dump of everything."""
        shutil.rmtree(folder, ignore_errors=True)
        debugger = PrecisionDebugger(DebuggerConfig(folder, task="tensor", level=self.level, md5=True))
        for step in range(steps):
            arguments = [Tensor(each) for each in (batch if batch and not step else self.training.batch)]
            debugger.start(self.training.net)
            self.training.step(*arguments)
            debugger.stop()
            debugger.step()
            if step == 0:
                self.updated = [weight.asnumpy().tobytes() for weight in self.training.net.trainable_params()]

    def _restore(self) -> None:
        for parameter, value in self._state:
            parameter.set_data(Tensor(value))

    def strike(self, number: int) -> None:
        """Makes the step with one fault, and judges what is said of it."""
        kind = KINDS[number % len(KINDS)]
        random = np.random.default_rng(number)
        struck: list[str] = []
        Struck.strike = staticmethod(strike_of(number, AMOUNTS[number // len(KINDS) % len(AMOUNTS)], struck))
        self._restore()
        tested = self.folder / "tested"
        expected, steps = self._make(kind, random, tested, struck)
        if not struck:
            self.counts[kind, "", "not struck"] += 1
            return
        variants(tested)
        for way, pair in self._answers(steps):
            divergence = pair.divergence
            right = divergence is not None and self._is_right(kind, expected, pair)
            verdict = judged(divergence, right=right)
            self.counts[kind, way, verdict] += 1
            missed = verdict != "right" and way != "statistics" and self.trusted == "golden"
            if missed or verdict.startswith("wrong"):
                named = divergence.sentence if divergence is not None else "nothing"
                self.wrong.append({"fault": number, "how": way, "struck": expected, "named": named})
                print(f"{number} {kind} {struck} {way}: struck {expected}, {verdict}: {named}", flush=True)

    def _make(self, kind: str, random: np.random.Generator, tested: Path, struck: list[str]) -> tuple[str, int]:
        if kind in self.places:
            place = self.places[kind][random.integers(len(self.places[kind]))]
            Struck.target = place
            self._run(tested, 1)
            Struck.target = None
            memory, before, after = Struck.undo
            if memory.tobytes() == after.tobytes():  # a constant of the graph, which no step writes again
                memory[...] = before
            return place.name, 1
        if kind == "data":
            first, *rest = self.training.batch
            if first.dtype == np.int32:
                first = first.copy()
                first.flat[random.integers(first.size)] ^= 1
                struck.append("token")
            else:
                first = Struck.strike(first)
            self._run(tested, 1, (first, *rest))
            return "data", 1
        chosen = self.training.net.trainable_params() if kind == "weight" else self.training.moments
        parameter = chosen[random.integers(len(chosen))]
        parameter.set_data(Tensor(Struck.strike(parameter.asnumpy())))
        steps = 2 if kind == "moment" else 1
        self._run(tested, steps)
        if steps == 2 and self.updated == self.golden:
            struck.clear()  # the moment was too small to show
        return re.sub(r"^(moments|accum|adam_[mv])\.", "", parameter.name), steps

    def _answers(self, steps: int, tested: str = "tested") -> Iterator[tuple[str, Pair]]:
        for way in WAYS:
            request = Request(*(self.folder / side / way for side in (tested, self.trusted)))
            if steps == 1:
                request = Request(*(self.folder / side / way / "step0" for side in (tested, self.trusted)))
            outcome = compare_runs(request, self.folder / "out", Options())
            shutil.rmtree(self.folder / "out", ignore_errors=True)
            yield way, outcome.first or outcome.pairs[0]

    def _is_right(self, kind: str, expected: str, pair: Pair) -> bool:
        found = pair.divergence
        assert found is not None
        if kind in ("forward", "backward"):
            return found.call == expected
        if kind in ("weight", "moment"):
            owner = expected.rpartition(".")[0]
            return found.kind == "weight" and owner in found.sentence and pair.step == (kind == "moment")
        if kind == "gradient":
            return found.call == expected
        if found.kind in ("input", "weight"):  # nobody computed wrongly
            return True
        # What happens between two calls of a module is that module's own. A call inside it, or one that gets the same
        # tensor, may have been looked at before the strike, and have computed after it.
        same = self._given(found.call) & self._given(expected)
        module = self.healthy.parents.get(expected)
        return bool(same) or found.call == module or expected in self._around(found.call)

    def _given(self, call: str) -> set[str | None]:
        slots = self.healthy.entries[call].slots if call in self.healthy.entries else ()
        return {slot.md5 for slot in slots if slot.state == "input" and slot.scalar is None}

    def _around(self, call: str) -> list[str]:
        found: list[str] = []
        while (call := self.healthy.parents.get(call)) is not None:
            found.append(call)
        return found


def run(faults: range, folder: Path, only: str = "", *, across: bool = False) -> dict[str, Any]:
    """Strikes each training in turn and counts.

    Args:
        faults: Their numbers.
        folder: For dumps.
        only: Part of the names of the trainings that are struck.
        across: Whether the healthy run is one in PyNative.
    """
    workload.use_mode("graph")
    counts: Counter[str] = Counter()
    wrong, begin = [], 0
    shares = sum(share for *_, share in TRAININGS.values())
    for name, (make, kind, level, share) in TRAININGS.items():
        end = begin + len(faults) * share // shares
        own, begin = faults[begin:end], end
        if only not in name:
            continue
        trial = Trial(make(kind), level, folder / level / kind, make(kind) if across else None)
        print(f"{name}: {', '.join(f'{len(found)} {what}' for what, found in trial.places.items())}", flush=True)
        for number in own:
            trial.strike(number)
            if number % 10 == 9:
                print(number + 1, f"{time.process_time():.0f} s of processor time", flush=True)
        counts.update({" ".join(filter(None, key)): count for key, count in trial.counts.items()})
        wrong += [{"training": name, **each} for each in trial.wrong]
    return {"counts": dict(sorted(counts.items())), "wrong": wrong}
