"""The matrix of the dry run: networks, layouts, and what protects the training."""

import argparse
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from empty_cann import build, compile_on, read_graph, why_not
from layout import Layout

from asd.cli.shared.machine import commit

PROGRAM = Path(__file__).parent / "programs" / "compile_one.py"
_TOLD = re.compile(r'^(\{"error": .*\})$', re.MULTILINE)
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "ascend.json"
_COMMAND = "python tests/ascend/compile_matrix.py"

_DIVIDED = {"parallel": "semi_auto_parallel"}
_FOUR = Layout(**_DIVIDED, ranks=4, tensor=2, data=2)
LAYOUTS = {
    "single": Layout(),
    "data": Layout("data_parallel", ranks=8, data=8),
    "data-optimizer": Layout("data_parallel", ranks=8, data=8, optimizer="level1"),
    "data-optimizer-last": Layout("data_parallel", ranks=8, rank=7, data=8, optimizer="level1"),
    "tensor-data": _FOUR,
    "sequence": _FOUR._replace(sequence=True),
    "experts": _FOUR._replace(experts=2, sequence=True),  # mindformers wants both beside tensor parallel
    "flash": _FOUR._replace(flash=True),
    "accumulate": _FOUR._replace(accumulate=4),
    "recompute": _FOUR._replace(recompute=True),
    "select": _FOUR._replace(select=True),
    "loss-scale": _FOUR._replace(type="float16", dynamic_scale=True),
    "optimizer-1": Layout(**_DIVIDED, ranks=4, data=4, optimizer="level1"),
    "optimizer-2": Layout(**_DIVIDED, ranks=4, data=4, optimizer="level2"),
    "pipeline": Layout(**_DIVIDED, ranks=8, tensor=2, data=2, stages=2),
    "pipeline-last": Layout(**_DIVIDED, ranks=8, rank=7, tensor=2, data=2, stages=2),
    "pipeline-inlined": Layout(**_DIVIDED, ranks=8, tensor=2, data=2, stages=2, inline=True),
    "wrapped": _FOUR._replace(wrapped=True),
    "sunk": _FOUR._replace(sunk="fetch"),
    "sunk-rerun": _FOUR._replace(sunk="rerun"),
    "search": Layout("auto_parallel", ranks=8, data=8, search="recursive_programming"),
    "propagated": Layout("auto_parallel", ranks=8, tensor=4, data=2, search="sharding_propagation"),
    "own": _FOUR._replace(own=True),
    "own-pipeline": Layout(**_DIVIDED, ranks=8, tensor=2, data=2, stages=2, own=True),
    "own-pipeline-last": Layout(**_DIVIDED, ranks=8, rank=7, tensor=2, data=2, stages=2, own=True),
    "own-experts-pipeline": Layout(**_DIVIDED, ranks=8, tensor=2, data=2, stages=2, experts=2, sequence=True, own=True),
    "1024-last": Layout(**_DIVIDED, ranks=1024, rank=1023, tensor=8, data=128),
}

_ON = {"NPU_ASD_ENABLE": "1"}
_DOCUMENT = {**_ON, "ASD_PROTECTION": "document"}
PROTECTIONS = {"none": {}, "document": _DOCUMENT, "full": _ON}
_SHORT, _ALL = ("none", "document"), tuple(PROTECTIONS)
PROTECTIONS["struck"] = {**_ON, "FAULTS": "gradient:.:flip=30:step=1 output:.:block=2:step=1:chance=0.5"}
PROTECTIONS["wrong sums"] = {**_ON, "FAULTS": "sum:.:set=nan:step=1"}
_DIVIDED_BLOCKS = "tensor-data pipeline pipeline-last optimizer-1 optimizer-2 recompute loss-scale accumulate 1024-last"
_PLAN = (
    ("blocks", ("single", "data"), _ALL),
    ("blocks", (*_DIVIDED_BLOCKS.split(), "wrapped", "search", "propagated"), _ALL),
    ("blocks", ("data-optimizer", "data-optimizer-last"), _SHORT),
    ("norm_last", ("pipeline",), _ALL),
    ("convolutions", ("data",), _ALL),
    ("llama", ("sequence", "select", "pipeline", "pipeline-inlined"), _ALL),
    ("qwen", ("flash", "own", "own-pipeline", "own-pipeline-last"), _ALL),
    ("qwen_moe", ("experts", "own-experts-pipeline"), _ALL),
)


class Cell(NamedTuple):
    """One place of the matrix."""

    net: str  # a function of a module in `programs`, most of `small.py`
    layout: str  # one of `LAYOUTS`
    protection: str  # one of `PROTECTIONS`

    def __str__(self) -> str:
        return "/".join(self)


def cells() -> Iterator[Cell]:
    """All of them."""
    for net, layouts, protections in _PLAN:
        yield from itertools.starmap(Cell, itertools.product([net], layouts, protections))


def compile_cells(cann: Path, work: Path, together: Sequence[Cell], *, timed: bool) -> dict[Cell, dict[str, Any]]:
    """Compiles some of one network and layout; whether that worked, and what the graphs of a step are made of.

    Args:
        cann: The folder of an empty CANN.
        work: Where the process runs.
        together: The cells.
        timed: Whether MindSpore learns its own functions before, which then take no time of the first cell.

    Returns:
        Of each: `compiled`; `error`, its first line or empty; `collectives`, of each kind; `operators`, how many;
        `kinds` and `types`, the names of operators and of elements'
        types; `seconds` of a processor that it took to compile; `checked`, what the package said at the start,
        `places`, at how many places, and `lacks`, what of that which was asked for it does not check.
    """
    net, layout = together[0].net, LAYOUTS[together[0].layout]
    settings = [{}] * timed + [PROTECTIONS[cell.protection] for cell in together]
    words = (PROGRAM, net, json.dumps(layout._asdict()), json.dumps(settings))
    code, log = compile_on(cann, work, *words, ranks=layout.ranks, rank=layout.rank, seconds=1500)
    parts = _TOLD.split(log)[2 * timed :]
    told = list(itertools.zip_longest(parts[::2], parts[1::2]))
    return {cell: _found(*(told[i] if i < len(told) else (log, None)), code) for i, cell in enumerate(together)}


def _found(said: str, told: str | None, code: int) -> dict[str, Any]:
    if told is None:
        fault = {"error": f"the process ended with code {code}", "seconds": 0.0, "graphs": []}
    result = json.loads(told) if told is not None else fault
    text = Path(result["graphs"][-1]).read_text() if result["graphs"] else ""
    graph = read_graph(text)
    checked = re.search(r"(\d+) checkpoints: [^;\n]*", said)
    found = {name: result[name] for name in ("error", "seconds")} | {"compiled": not result["error"]}
    found |= {"checked": checked[0] if checked else "", "places": int(checked[1]) if checked else 0}
    found["lacks"] = sorted(set(re.findall(r"not active, or not everywhere: (.*)", said)))
    found |= {"kinds": sorted(graph.operators), "types": sorted(graph.types)}
    return found | {"collectives": dict(sorted(graph.collectives.items())), "operators": graph.operators.total()}


def main() -> int:
    """Compiles what was asked for; the exit code is 1 if a cell did not compile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="cells that this is found in")
    parser.add_argument("--list", action="store_true", help="name the cells and compile none")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cann", type=Path, help="folder of an empty CANN that `build` has made")
    asked = parser.parse_args()
    chosen = [cell for cell in cells() if asked.only.search(str(cell))]
    if asked.list or (reason := why_not()):
        print("\n".join(map(str, chosen)) if asked.list else f"matrix: {reason}")
        return 0 if asked.list else 1
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    measured = known["measured"] if asked.only.pattern else {"commit": commit(), "command": _COMMAND}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        cann = asked.cann or build(Path(folder) / "cann")
        groups = [list(group) for _, group in itertools.groupby(chosen, key=lambda cell: cell[:2])]
        works = [Path(folder) / "-".join(group[0][:2]) for group in groups]
        for group in pool.map(partial(compile_cells, cann, timed=True), works, groups):
            for cell, found in group.items():
                kept = ("compiled", "error", "collectives", "operators", "places", "seconds", "lacks")
                known[str(cell)] = {name: found[name] for name in kept}
                print(cell, json.dumps(found), flush=True)
            ordered = {"measured": measured} | {str(each): known[str(each)] for each in cells() if str(each) in known}
            RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    return 0 if all(known[str(cell)]["compiled"] for cell in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
