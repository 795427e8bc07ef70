"""The lines of the older `.pkl` of dumps, to write: one JSON array a line. It is text, never a pickle.

    ["Functional_linear_0_forward_input.0", 1, [], "mindspore.float32", [3, 2], [max, min, mean]]
    ["Functional_linear_0_forward_stack_info", ["File ..., line ..., in ...", ...]]

`ptdbg_file` reads them.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from asd.dumps.formats.new_file import new_file
from asd.errors import StateError

__all__ = ["lines_of", "old_name", "write_tree"]

_SLOTS = {"input_args": "input", "input": "input", "input_kwargs": "input", "output": "output"}
_SCALARS = ("int", "float", "bool")


def old_name(name: str) -> str:
    """The older style of an entry's name.

    >>> old_name("Functional.linear.145.backward")
    'Functional_linear_145_backward'
    """
    return name.replace(".", "_")


def lines_of(name: str, data: dict[str, Any], *, scalars: bool = False) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """The lines of one entry, each with what `dump.json` says of its value.

    Args:
        name: Of the entry, in today's style.
        data: Its parts as in `dump.json`.
        scalars: Numbers have lines too.
    """
    # Of the gradients of parameters each is a part, which has the parameter's name.
    slots = {part: part for part in data} if ".parameters_grad." in name else _SLOTS
    values: dict[str, list[dict[str, Any]]] = {}
    for part, slot in slots.items():
        values.setdefault(slot, []).extend(_leaves(data.get(part), scalars=scalars))
    for slot, found in values.items():
        alone = slot != "input" and len(found) == 1
        for index, value in enumerate(found):
            place = f"{old_name(name)}_{slot}" if alone else f"{old_name(name)}_{slot}.{index}"
            yield [place, 1, [], *_described(value)], value


def write_tree(dump: Path, folder: Path) -> Path:
    """Writes a finished dump as `dump.pkl` and `dump/*.npy`, the tree of ptdbg_ascend.

    Args:
        dump: The folder of a step and rank, with its `dump.json`.
        folder: That of the rank in the tree. What an earlier call left there stays: the next is `dump.1.pkl`.

    Returns:
        The `.pkl`.

    Raises:
        StateError: The dump is not there, or it is no dump.
        OSError: A file can't be read or written.
    """
    try:
        data = json.loads((dump / "dump.json").read_text(encoding="utf-8"))["data"]
        stacks = json.loads((dump / "stack.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, KeyError) as error:
        raise StateError(f"{dump} holds no finished dump ({error!s:.100}).") from None
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    while (pkl := folder / f"dump{f'.{number}' if number else ''}.pkl").exists():
        number += 1
    tensors = pkl.with_suffix("")
    with new_file(pkl) as file:
        for name in dict.fromkeys((*data, *stacks)):
            for line, value in lines_of(name, data.get(name, {}), scalars=True):
                file.write(json.dumps(line).encode() + b"\n")
                if "data_name" in value:
                    _put_beside(dump / "dump_tensor_data" / value["data_name"], tensors / f"{line[0]}.npy")
            if name in stacks:
                file.write(json.dumps([f"{old_name(name)}_stack_info", stacks[name]]).encode() + b"\n")
    return pkl


def _described(value: dict[str, Any]) -> tuple[str, list[int], list[Any]]:
    """Type, shape and the three numbers: of a scalar three times itself."""
    if "dtype" in value:
        numbers = [value.get("Max"), value.get("Min"), value.get("Mean")]
        return f"mindspore.{value['dtype'].lower()}", value["shape"], numbers
    return f"<class '{value['type']}'>", [], [value["value"]] * 3


def _leaves(value: Any, *, scalars: bool) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield value
    elif isinstance(value, dict) and value.get("type") in _SCALARS:
        if scalars:
            yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item, scalars=scalars)


def _put_beside(tensor: Path, name: Path) -> None:
    """The same file under another name, without a second copy where the file system can do that."""
    name.parent.mkdir(exist_ok=True)
    try:
        os.link(tensor, name)
    except OSError:
        shutil.copyfile(tensor, name)
