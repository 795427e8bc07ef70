"""The matrix of the dry run: networks, layouts, and what protects the training. Each cell is a process of its own.

python tests/ascend/compile_matrix.py                     # every cell, into benchmarks/results/ascend.json
python tests/ascend/compile_matrix.py --only 'blocks/data/'   # some, the others stay as they are
python tests/ascend/compile_matrix.py --list
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from empty_cann import build, compile_on, why_not
from layout import Layout

PROGRAM = Path(__file__).parent / "programs" / "compile_one.py"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "ascend.json"

_DIVIDED = {"parallel": "semi_auto_parallel"}
LAYOUTS = {
    "single": Layout(),
    "data": Layout("data_parallel", ranks=8, data=8),
    "data-optimizer": Layout("data_parallel", ranks=8, data=8, optimizer="level1"),
    "data-optimizer-last": Layout("data_parallel", ranks=8, rank=7, data=8, optimizer="level1"),
    "tensor": Layout(**_DIVIDED, ranks=8, tensor=8),
    "tensor-data": Layout(**_DIVIDED, ranks=4, tensor=2, data=2),
    "recompute": Layout(**_DIVIDED, ranks=4, tensor=2, data=2, recompute=True),
    "loss-scale": Layout(**_DIVIDED, ranks=4, tensor=2, data=2, type="float16", dynamic_scale=True),
    "O1": Layout(**_DIVIDED, ranks=4, tensor=2, data=2, jit_level="O1"),
    "optimizer-1": Layout(**_DIVIDED, ranks=4, data=4, optimizer="level1"),
    "optimizer-2": Layout(**_DIVIDED, ranks=4, data=4, optimizer="level2"),
    "pipeline": Layout(**_DIVIDED, ranks=8, tensor=2, data=2, stages=2),
    "pipeline-last": Layout(**_DIVIDED, ranks=8, rank=7, tensor=2, data=2, stages=2),
    "pipeline-inlined": Layout(**_DIVIDED, ranks=8, tensor=2, data=2, stages=2, inline=True),
    "1024-first": Layout(**_DIVIDED, ranks=1024, rank=0, tensor=8, data=128),
    "1024-middle": Layout(**_DIVIDED, ranks=1024, rank=512, tensor=8, data=128),
    "1024-last": Layout(**_DIVIDED, ranks=1024, rank=1023, tensor=8, data=128),
}

_ON = {"NPU_ASD_ENABLE": "1"}
_ADAPTIVE = {**_ON, "ASD_RULE": "adaptive"}
PROTECTIONS = {
    "none": {},
    "document": _ON,
    "adaptive": _ADAPTIVE,
    "everything": {
        **_ADAPTIVE, "ASD_TIERS": "finite,adaptive,checksum", "ASD_CONFIRM": "0.01", "ASD_REPLAY": "1",
    },
    "combined": {**_ON, "MS_NPU_ASD_CONFIG": "enable:true"},
}  # fmt: skip

_SHORT, _MAIN = ("none", "document"), ("none", "document", "adaptive")
_PLAN = (
    ("blocks", ("single", "tensor-data", "pipeline"), (*_MAIN, "everything")),
    ("blocks", ("data",), _MAIN),
    ("blocks", ("data", "tensor-data"), ("combined",)),
    ("blocks", ("optimizer-1",), _MAIN),
    ("blocks", ("tensor", "optimizer-2", "data-optimizer", "data-optimizer-last", "recompute", "loss-scale", "O1",
                "pipeline-last", "1024-first", "1024-middle", "1024-last"), _SHORT),
    ("gather", ("tensor-data",), _MAIN),
    ("norm_last", ("pipeline",), _MAIN),
    ("llama", ("tensor-data",), _MAIN),
    ("llama", ("pipeline", "pipeline-inlined"), _SHORT),
)  # fmt: skip


class Cell(NamedTuple):
    """One place of the matrix.

    Attributes:
        net: A function of `programs/small.py`, or `llama`.
        layout: One of `LAYOUTS`.
        protection: One of `PROTECTIONS`.
    """

    net: str
    layout: str
    protection: str

    def __str__(self) -> str:
        return "/".join(self)


def cells() -> Iterator[Cell]:
    """All of them."""
    for net, layouts, protections in _PLAN:
        yield from itertools.starmap(Cell, itertools.product([net], layouts, protections))


def compile_cell(cann: Path, work: Path, cell: Cell) -> dict[str, Any]:
    """Compiles one; whether that worked, and what the graph of a step is made of.

    Returns:
        `compiled`; `error`, its first line or empty; `collectives`, of each kind; `operators`, how many; `kinds` and
        `types`, the names of operators and of elements' types; `seconds` of a processor that it took to compile;
        `checked`, what the package said at the start, and `lacks`, what of that which was asked for it does not check.
    """
    layout = LAYOUTS[cell.layout]
    done = compile_on(cann, work, PROGRAM, cell.net, json.dumps(layout._asdict()),
                      ranks=layout.ranks, rank=layout.rank, seconds=900, **PROTECTIONS[cell.protection])  # fmt: skip
    try:
        told = json.loads(done.log.strip().splitlines()[-1])
    except (ValueError, IndexError):
        told = {"error": f"the process ended with code {done.code}", "seconds": 0.0}
    checked = re.search(r"\d+ checkpoints: [^;\n]*", done.log)
    return {
        "compiled": done.code == 0, "error": told["error"], "collectives": dict(sorted(done.collectives.items())),
        "operators": done.operators.total(), "kinds": sorted(done.operators), "types": sorted(done.types),
        "seconds": told["seconds"], "checked": checked[0] if checked else "",
        "lacks": sorted(set(re.findall(r"asked for by (.*)", done.log))),
    }  # fmt: skip


def main() -> int:
    """Compiles what was asked for; the exit code is 1 if a cell did not compile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=re.compile, default=re.compile(""), help="cells that this is found in")
    parser.add_argument("--list", action="store_true", help="name the cells and compile none")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cann", type=Path, help="folder of an empty CANN that `build` has made")
    asked = parser.parse_args()
    chosen = [cell for cell in cells() if asked.only.search(str(cell))]
    if asked.list or (reason := why_not()):
        print("\n".join(map(str, chosen)) if asked.list else f"matrix: {reason}")
        return 0 if asked.list else 1
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as pool:
        cann = asked.cann or build(Path(folder) / "cann")
        works = [Path(folder) / str(cell).replace("/", "-") for cell in chosen]
        for cell, found in zip(chosen, pool.map(compile_cell, itertools.repeat(cann), works, chosen), strict=True):
            kept = ("compiled", "error", "collectives", "operators", "seconds", "lacks")
            known[str(cell)] = {name: found[name] for name in kept}
            print(cell, json.dumps(found), flush=True)
            ordered = {str(each): known[str(each)] for each in cells() if str(each) in known}
            RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    return 0 if all(known[str(cell)]["compiled"] for cell in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
