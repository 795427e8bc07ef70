"""Strikes in the memory of a compiled graph, and the dumps that come of them."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asd.dumps.formats.slots import split_name
from asd.operators.debugger.graph.graph_calls import GraphCalls

__all__ = ["WAYS", "Place", "Struck", "places_of", "variants"]

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


def places_of(seen: list[tuple[Place, str, int, int]]) -> dict[str, list[Place]]:
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
