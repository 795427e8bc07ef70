"""What the checks cost on a device, counted from graphs compiled for one: bytes and launches, for Llama-2 7B."""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compile_matrix import PROGRAM, PROTECTIONS
from empty_cann import build, compile_on, why_not
from layout import Layout

from asd.cli.shared.machine import commit

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "cost.json"
BANDWIDTH, PEAK, USED = 1.6e12, 313e12, 0.45


class Model(NamedTuple):
    """A network of which few layers are compiled."""

    nets: tuple[str, str, str]  # of one layer, of two, and of one with the whole vocabulary
    layers: int  # how many it has
    width: int  # of all heads of attention together
    parameters: float  # how many a token meets
    length: int = 4096  # tokens of a sequence

    def step_seconds(self, ranks: int) -> float:
        """What a step of one sequence takes, of a rank that shares it with others."""
        operations = 6 * self.parameters * self.length + 12 * self.layers * self.width * self.length**2
        return operations / (PEAK * USED) / ranks


LLAMA = Model(("one_layer", "two_layers", "whole_vocabulary"), 32, 4096, 6.74e9)
QWEN = Model(("one_expert_layer", "two_expert_layers", "experts_with_vocabulary"), 48, 4096, 3.3e9)
_EIGHT: dict[str, Any] = {"parallel": "semi_auto_parallel", "ranks": 8}
LAYOUTS = {
    "tensor": (LLAMA, Layout(**_EIGHT, tensor=8)),
    "sequence": (LLAMA, Layout(**_EIGHT, tensor=8, sequence=True)),
    "data": (LLAMA, Layout("data_parallel", ranks=8, data=8)),
    "ZeRO": (LLAMA, Layout(**_EIGHT, data=8, optimizer="level1")),
    "experts": (QWEN, Layout(**_EIGHT, tensor=2, data=4, experts=4, sequence=True, flash=True)),
}
_BYTES = {"Float64": 8, "Float32": 4, "Float16": 2, "BFloat16": 2}
_BYTES |= {"Int64": 8, "Int32": 4, "Int8": 1, "UInt8": 1, "Bool": 1}
_OPERATOR = re.compile(r"^ +%\d+\([^)]*\) = (?:Prim\w*?_)?([A-Z]\w*)\(.*\n +: (.*)$", re.MULTILINE)
_TENSOR = re.compile(r"(?:Ref\[)?Tensor\[(\w+)\]\]?, \(([\d, ]*)\)")
_BACKWARD = re.compile(r"^# Parameters: \d+, \((.*)\)\n(?:#.*\n)*subgraph @\S*◂", re.MULTILINE)
_OWN = re.compile(r"<Tensor\[(\w+)\], \(([\d, ]*)\)")
_NO_WORK = "Load Depend UpdateState MakeTuple TupleGetItem Return Switch Partial Reshape ExpandDims"
_FREE = set(_NO_WORK.split())
"""They order, pass on, or look at the same memory in another shape."""
_IN_PLACE = {"ScatterMax"}
"""They touch a few elements of the first operand alone."""
_CAST_FIRST = {"LinalgVectorNorm", "LpNormV2"}
"""CANN casts half precision to float32 before them: one launch, four bytes an element written and read once more."""


class Count(NamedTuple):
    """What a graph moves and calls."""

    bytes: float  # read and written by its operators
    launches: float  # operators
    kept: float = 0  # bytes that the forward pass leaves for the backward pass

    def minus(self, other: Count) -> Count:
        """How much more it is."""
        return self.plus(other, -1)

    def plus(self, other: Count, times: float = 1) -> Count:
        """Both together."""
        return Count(*(mine + times * theirs for mine, theirs in zip(self, other, strict=True)))


def count(graph: str) -> Count:
    """Of a graph as MindSpore writes it."""
    total = launches = 0
    for name, types in _OPERATOR.findall(graph):
        if name in _FREE:
            continue
        launches += 1
        if name not in _IN_PLACE:
            tensors = _TENSOR.findall(types)
            sizes = [_size(*found) for found in tensors]
            if name in _CAST_FIRST and _BYTES[tensors[0][0]] == 2:
                launches, total = launches + 1, total + 4 * sizes[0]
            total += sum(sizes[1:]) + (sizes[-1] if name == "Gather" else sum(sizes[:1]))  # it reads what it returns
    return Count(
        total, launches, sum(_size(*found) for types in _BACKWARD.findall(graph) for found in _OWN.findall(types))
    )


def _size(kind: str, shape: str) -> int:
    size = _BYTES[kind]
    for length in shape.replace(" ", "").strip(",").split(","):
        size *= int(length) if length else 1
    return size


def measure(cann: Path, name: str) -> dict[str, dict[str, float]]:
    """What each protection adds to a step under one layout.

    Raises:
        RuntimeError: It does not compile.
    """
    (model, layout), protections = LAYOUTS[name], ("none", "document", "full")
    counts = [_count_all(cann, net, layout, protections) for net in model.nets]
    shared = layout.ranks // layout.data if layout.parallel == "semi_auto_parallel" else 1
    seconds = model.step_seconds(shared)
    found = {}
    for place, protection in enumerate(protections[1:], 1):
        one, two, whole = (each[place].minus(each[0]) for each in counts)
        added = whole.plus(two.minus(one), model.layers - 1)
        found[protection] = {
            "megabytes": round(added.bytes / 1e6, 1),
            "percent": round(100 * added.bytes / BANDWIDTH / seconds, 2),
            "launches": round(added.launches),
            "kept_megabytes": round(added.kept / 1e6, 1),
            "step_ms": round(1000 * seconds, 1),
        }
    return found


def _count_all(cann: Path, net: str, layout: Layout, protections: Sequence[str]) -> list[Count]:
    settings = json.dumps([PROTECTIONS[each] for each in protections])
    with tempfile.TemporaryDirectory() as folder:
        code, printed = compile_on(
            cann, Path(folder), PROGRAM, net, json.dumps(layout._asdict()), settings, ranks=layout.ranks, seconds=3000
        )
        lines = [json.loads(line) for line in printed.splitlines() if line.startswith('{"error"')]
        if len(lines) != len(protections) or any(line["error"] for line in lines):
            raise RuntimeError(f"{net} does not compile (exit code {code}): {[line['error'] for line in lines]}")
        return [sum_of(line["graphs"]) for line in lines]


def sum_of(graphs: Sequence[str]) -> Count:
    """Of all graphs of a step."""
    total = Count(0, 0)
    for graph in graphs:
        total = total.plus(count(Path(graph).read_text(encoding="utf-8")))
    return total


def main(words: Sequence[str] | None = None) -> int:
    """Measures, prints a table, and writes it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=LAYOUTS, help="one layout; the others stay as they are")
    options = parser.parse_args(words)
    if reason := why_not():
        print(f"nothing can be compiled for Ascend here: {reason}", file=sys.stderr)
        return 1
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        cann = build(Path(folder) / "cann")
        if not options.only:  # else the commit of the older layouts is the one that counts
            found["measured"] = {"commit": commit(), "command": "make cost"}
        for name in [options.only] if options.only else LAYOUTS:
            found[name] = measure(cann, name)
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            for protection, row in found[name].items():
                print(name, protection, *(f"{key} {value}" for key, value in row.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
