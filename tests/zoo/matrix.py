"""Which groups there are, which of them are run today, and how one is run; MindSpore is imported by nothing here."""

import datetime
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
_OPTIMIZERS = "adadelta adagrad adamax adamoffload asgd ftrl lazyadam proximaladagrad rmsprop rprop"
OPTIMIZERS = tuple(_OPTIMIZERS.split())
"""Those of MindSpore that no other kind has."""
FLOAT32 = ("planned", "announced", "anew", "resumed", *OPTIMIZERS)
"""In float32 alone."""
_KINDS = """
    batchnorm groupnorm unet lstm gru encoder dropout tied swiglu moe1 moe2 moesoft moestack adapters recommender
    diffusion gan frozen casts castdense accumulation recompute loop clipping jit jitstep model fit sink processes
    schedules schedulesmodel rewind functional fixedscale tiny huge
"""
KINDS = (*_KINDS.split(), *FLOAT32)
MODES = ("graph", "pynative")
PRECISIONS = ("float32", "float16", "O1", "O2", "O3", "dynamic")
CONFIGURATIONS = ("document", "adaptive", "everything")
REGROUPED = "plain MindSpore ends otherwise with an operator that checks nothing in the place of each product"
TIMEOUT = 600  # seconds for one group on a machine that is busy elsewhere
_SETTINGS = ("NPU_ASD_", "ASD_", "MS_NPU_ASD_")

Cell = dict[str, Any]


class Group(NamedTuple):
    """What one process trains."""

    kind: str  # one of `KINDS`
    mode: str  # one of `MODES`
    precision: str  # one of `PRECISIONS`
    seed: int  # chooses the faults
    configurations: tuple[str, ...] = CONFIGURATIONS  # some of `CONFIGURATIONS`

    def __str__(self) -> str:
        name = f"{self.kind}-{self.mode}-{self.precision}"
        return name if self.configurations == CONFIGURATIONS else f"{name}-{'-'.join(self.configurations)}-{self.seed}"


def seed_of_the_day() -> int:
    """`ZOO_SEED`, or the date."""
    return int(os.environ.get("ZOO_SEED") or datetime.date.today().strftime("%Y%m%d"))


def all_groups(seed: int) -> list[Group]:
    """The whole zoo."""
    chosen = [(kind, PRECISIONS[: 1 if kind in FLOAT32 else None]) for kind in KINDS]
    return [Group(kind, mode, each, seed) for kind, several in chosen for mode in MODES for each in several]


def eighth(seed: int) -> list[Group]:
    """Every cell that once failed, and an eighth of all, chosen by the seed: what ends within an hour."""
    whole = all_groups(seed)
    chosen = sorted(random.Random(seed).sample(range(len(whole)), len(whole) // 8))
    return once_failed() + [whole[i] for i in chosen]


def once_failed() -> list[Group]:
    """The cells in `once_failed.txt`, with the fault that they had."""
    lines = (HERE / "once_failed.txt").read_text().splitlines()
    return [_parse(line) for line in lines if line and not line.startswith("#")]


def known_cause(cell: Cell) -> str:
    """Why a cell is known to fail, by `known_failures.txt`; empty for one that must hold."""
    name = "-".join(cell[each] for each in ("kind", "mode", "precision", "configuration"))
    lines = (HERE / "known_failures.txt").read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines if line).get(name, "")


def _parse(line: str) -> Group:
    name, seed = line.split()
    kind, mode, precision, configuration = name.split("-")
    return Group(kind, mode, precision, int(seed), (configuration,))


def run(group: Group) -> list[Cell]:
    """Runs a group in a process of its own; a crash or a hang is a failure of each of its cells."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, str(HERE / "run.py"), *map(str, group[:4]), *group.configurations]
    try:
        how = {"capture_output": True, "text": True, "timeout": TIMEOUT, "stdin": subprocess.DEVNULL, "check": False}
        done = subprocess.run(command, env=environ | {"PYTHONPATH": python_path}, **how)
        found = [line for line in done.stdout.splitlines() if line.startswith("[{")]
        if done.returncode == 0 and found:
            return json.loads(found[-1])
        failure = f"the process ends with {done.returncode}: {done.stderr.strip()[-300:]}"
    except subprocess.TimeoutExpired:
        failure = f"the process does not end within {TIMEOUT} s"
    name = {"kind": group.kind, "mode": group.mode, "precision": group.precision, "seed": group.seed}
    return [{**name, "configuration": each, "note": "", "failures": [failure]} for each in group.configurations]
