"""Makes every call of a dump again by itself, and writes what came of it as a dump to compare with.

A call that computes wrongly in the network and rightly alone shows itself without any other run. Calls that can't be
made again, or that do not say the same twice, such as those that draw random numbers, are left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from asd.dumps.precheck.calls import Call, TensorArgument, leaves, read_calls
from asd.dumps.precheck.inputs import Value
from asd.dumps.precheck.tables import Detail
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.writer import DumpWriter
from asd.operators.precheck.arguments import to_tensor
from asd.operators.precheck.check import TolerantCheck, _add_twins, _CheckJob
from asd.operators.precheck.execution import Place

__all__ = ["make_again"]

_TENSORS = "dump_tensor_data"
_KEEPS_STATE = re.compile(r"BatchNorm|InstanceNorm|Assign|Scatter|(?<!_)_$|__i\w+__$|__setitem__$")
"""Calls that change what they are given: what they began with is not in a dump."""


def make_again(dump: Path, into: Path) -> int:
    """Writes into the folder `into` what the calls of a dump of tensors give when each is made by itself.

    Args:
        dump: Its dump.json; the inputs stay as they are there.
        into: A new folder on the same file system.

    Returns:
        How many entries of the dump were made again.

    Raises:
        StateError: The dump can't be read.
        OSError: A file can't be read or written.
    """
    _, calls = read_calls(dump)
    check = _Again(dump, calls)
    for call in calls:
        if not _KEEPS_STATE.search(call.label):
            check.check(call)
    entries: dict[str, Any] = json.loads(dump.read_bytes())["data"]
    config = DebuggerConfig(Path(), task="tensor", level="mix", md5=True)
    writer = DumpWriter(into, config)
    for name, entry in entries.items():
        values = check.values.get(name)
        if not values:
            continue
        for part, described in entry.items():
            writer.value(name, part, [], described)
        for place, value in values.items():
            if _described(entry, place):
                told = writer.tensor(_file_name(name, place), value.array, value.dtype, name)
                writer.value(name, "output", list(place), told)
    writer.finish()
    _link(dump.parent / _TENSORS, into / _TENSORS)
    return len(check.values)


class _Again(TolerantCheck):
    """Makes calls again and keeps what they give, without a judgement.

    Attributes:
        values: By the name of an entry.
    """

    def __init__(self, path: Path, calls: list[Call]) -> None:
        counts = Counter(call.label for call in calls)
        super().__init__(path, real=True, once=frozenset(label for label, count in counts.items() if count == 1))
        self.values: dict[str, dict[Place, Value]] = {}

    def _direction(self, job: _CheckJob, entry: str, described: Any, run: Any) -> tuple[list[Detail], list[str]]:
        first, second = (run(job, job.function, to_tensor) for _ in range(2))
        if run is _CheckJob.backward:
            for values in (first, second):
                _add_twins(job.args, described, values)
        told = {place for place, each in leaves(described) if isinstance(each, TensorArgument)}
        steady = {
            place: value
            for place, value in first.items()
            if place in told and place in second and value.array.tobytes() == second[place].array.tobytes()
        }
        if set(steady) == told & set(first):
            self.values[entry] = steady
        return [], []


def _described(entry: dict[str, Any], place: Place) -> bool:
    here: Any = entry.get("output")
    for step in place:
        try:
            here = here[step]
        except (LookupError, TypeError):
            return False
    return isinstance(here, dict) and "dtype" in here


def _file_name(name: str, place: Place) -> str:
    return ".".join([name, "output", *map(str, place)])


def _link(source: Path, target: Path) -> None:
    """Every file of `source` that `target` lacks."""
    for file in source.iterdir():
        if not (target / file.name).exists():
            try:
                os.link(file, target / file.name)
            except OSError:  # a file system without such links
                shutil.copyfile(file, target / file.name)
