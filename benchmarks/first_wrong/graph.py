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
"""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mindspore import Tensor

from asd.dumps.compare.comparison import Options, Pair, compare_runs
from asd.dumps.compare.request import Request
from asd.dumps.formats.dump_folder import read_dump
from asd.dumps.formats.slots import split_name
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.operators import PrecisionDebugger
from asd.operators.debugger import precision_debugger
from asd.operators.debugger.graph.graph_calls import GraphCalls
from asd.operators.drill import workload
from benchmarks.first_wrong.strikes import AMOUNTS, judged, strike_of
from benchmarks.first_wrong.trainings import TRAININGS, Training

__all__ = ["KINDS", "WAYS", "Trial", "run"]

KINDS = ("forward", "backward", "between", "gradient", "weight", "moment", "data")
WAYS = ("tensors", "CRC32", "statistics")
_FLOATS = ("float16", "float32")


class Place(NamedTuple):
    """Where a tap sees a tensor: entry, part of it, place in that."""

    name: str
    part: str
    path: tuple[Any, ...]


class Struck(GraphCalls):
    """Strikes the memory of a graph where `target` says, and notes what it sees in `seen`."""

    target: Place | None = None
    strike: Callable[[np.ndarray], np.ndarray]
    seen: list[tuple[Place, str, int, int]] | None = None
    undo: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def receive(self, label, array, dtype):
        """As it is, but for the strike."""
        with self._lock:
            found = self._place(label)
            if found is None:
                return
            place = Place(found[0], found[1], tuple(found[2]))
            if Struck.seen is not None:
                begin = array.__array_interface__["data"][0]
                Struck.seen.append((place, array.dtype.name, begin, begin + array.nbytes))
            if place == Struck.target:
                Struck.undo = array, array.copy(), Struck.strike(array)
                array[...] = Struck.undo[2]
            self._session.put_array(*found, array, dtype)


class Trial:
    """One training, struck again and again; its graph is compiled once.

    Args:
        training: It.
        level: Of the dumps.
        folder: For the dumps.
    """

    def __init__(self, training: Training, level: str, folder: Path) -> None:
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
        self.places, Struck.seen = _places(Struck.seen), None
        self.golden = self._healthy(folder / "golden")
        self.parents = read_dump(folder / "golden" / "CRC32" / "step0" / "rank0" / "dump.json").parents

    def _healthy(self, folder: Path) -> list[bytes]:
        self._run(folder, 2)
        self._restore()
        self._run(self.folder / "tested", 2)
        variants(folder), variants(self.folder / "tested")
        for way, pair in self._answers(2):
            assert pair.divergence is None, (way, pair.divergence)
        return self._weights()

    def _weights(self) -> list[bytes]:
        return [weight.asnumpy().tobytes() for weight in self.training.net.trainable_params()]

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
            if verdict.startswith("wrong") or (verdict == "not seen" and way != "statistics"):
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
        if steps == 2 and self._weights() == self.golden:
            struck.clear()  # the moment was too small to show
        return re.sub(r"^(moments|accum|adam_[mv])\.", "", parameter.name), steps

    def _answers(self, steps: int) -> Iterator[tuple[str, Pair]]:
        for way in WAYS:
            request = Request(*(self.folder / side / way for side in ("tested", "golden")))
            if steps == 1:
                request = Request(*(self.folder / side / way / "step0" for side in ("tested", "golden")))
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
        # What happens between two calls of a module is that module's own; and calls inside it may be seen before it.
        return found.call == self.parents.get(expected) or expected in self._around(found.call)

    def _around(self, call: str) -> list[str]:
        found: list[str] = []
        while (call := self.parents.get(call)) is not None:
            found.append(call)
        return found


def _places(seen: list[tuple[Place, str, int, int]]) -> dict[str, list[Place]]:
    """The places that can be struck, by kind: what a call gives must not be the memory of what it is given."""
    given: dict[str, list[tuple[int, int]]] = defaultdict(list)
    places: dict[str, list[Place]] = defaultdict(list)
    for place, dtype, begin, end in seen:
        direction = split_name(place.name)[1]
        is_given = place.part in ("input_args", "input_kwargs", "input")
        free = all(end <= start or stop <= begin for start, stop in given[place.name])
        given[place.name].append((begin, end))
        if dtype not in _FLOATS or end == begin:
            continue
        if direction == "parameters_grad":
            places["gradient"].append(place)
        elif is_given:
            places["between"].append(place)
        elif free:
            places[direction].append(place)
    return dict(places)


def variants(folder: Path) -> None:
    """Of dumps with tensors makes those with CRC-32s and those with statistics alone, each in a folder of its own."""
    for file in [*folder.glob("step*/rank*/dump.json")]:
        content = json.loads(file.read_text())
        for way in WAYS:
            target = folder / way / file.parent.relative_to(folder)
            target.mkdir(parents=True)
            for other in ("construct.json", "stack.json"):
                shutil.copy(file.with_name(other), target)
            kept = {"CRC32": ("data_name",), "statistics": ("data_name", "md5")}.get(way, ())
            told = {
                **content,
                "task": "tensor" if way == "tensors" else "statistics",
                "data": _without(content["data"], kept),
            }
            (target / "dump.json").write_text(json.dumps(told))
            if way == "tensors":
                shutil.move(str(file.with_name("dump_tensor_data")), target)
        shutil.rmtree(file.parent)


def _without(value: Any, left_out: tuple[str, ...]) -> Any:
    if isinstance(value, dict):
        return {key: _without(each, left_out) for key, each in value.items() if key not in left_out}
    return [_without(each, left_out) for each in value] if isinstance(value, list) else value


def run(faults: range, folder: Path) -> dict[str, Any]:
    """Strikes each training in turn, a quarter of the faults each, and counts."""
    workload.use_mode("graph")
    counts: Counter[str] = Counter()
    wrong = []
    for index, (name, (make, kind, level)) in enumerate(TRAININGS.items()):
        trial = Trial(make(kind), level, folder / str(index))
        print(f"{name}: {', '.join(f'{len(found)} {what}' for what, found in trial.places.items())}", flush=True)
        for number in faults[index :: len(TRAININGS)]:
            trial.strike(number)
        counts.update({" ".join(filter(None, key)): count for key, count in trial.counts.items()})
        wrong += [{"training": name, **each} for each in trial.wrong]
        print(sorted(trial.counts.items()), flush=True)
    return {"counts": dict(sorted(counts.items())), "wrong": wrong}
