"""Writes the table of one step: a row of statistics for the gradient of each parameter.

    <dump_path>/rank{R}/grad_summary_{step}.csv        UTF-8 with a byte order mark
    <dump_path>/rank{R}/step{N}/{parameter}.npy        bool: where the gradient is above 0 (level L1)

Level L0 has the CRC-32 of the float32 values.
"""

import csv
import io
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from asd.dumps.formats.statistics import crc32, moments
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.rundir.disk import whole_file, write_whole

_LONGEST_NAME = 250
Array = np.ndarray[Any, Any]


def columns(config: DebuggerConfig) -> list[str]:
    """Returns the header of the table."""
    return ["param_name", *(["MD5"] if config.grad_level == "L0" else []), "max", "min", "norm", "shape"]


def row(name: str, gradient: Array, config: DebuggerConfig) -> list[str]:
    """Returns the row of one parameter.

    Args:
        name: Name of the parameter.
        gradient: Any shape; float32 in place of bfloat16.
        config: Its level counts.
    """
    with np.errstate(over="ignore"):
        check = [crc32(gradient.astype(np.float32))] if config.grad_level == "L0" else []
    if gradient.size == 0:
        return [name, *check, "nan", "nan", "0.0", str(gradient.shape)]
    found = moments(np.ascontiguousarray(gradient))
    numbers = [repr(found.largest), repr(found.smallest), repr(math.sqrt(found.squares))]
    return [name, *check, *numbers, str(gradient.shape)]


def file_name(parameter: str) -> str:
    """Returns the name of a parameter's file of directions, without its ending; too long names are shortened."""
    safe = parameter.replace("/", "_").replace("\0", "_").lstrip(".") or "_"
    if len(safe.encode()) > _LONGEST_NAME:
        safe = f"{safe[:60]}.{zlib.crc32(parameter.encode()):08x}"
    return safe


def write_step(folder: Path, step: int, gradients: Mapping[str, Array], config: DebuggerConfig) -> None:
    """Writes the files of one step; the table comes last, so that its existence marks a complete step.

    Args:
        folder: Folder of the rank.
        step: Number of the step.
        gradients: Gradients by name of the parameter.
        config: Its level selects the files.
    """
    if config.grad_level != "L0":
        directions = folder / f"step{step}"
        directions.mkdir(parents=True, exist_ok=True)
        for name, gradient in gradients.items():
            _save(directions / f"{file_name(name)}.npy", gradient > 0)
    text = io.StringIO()
    csv.writer(text).writerows(
        [columns(config), *(row(name, gradient, config) for name, gradient in gradients.items())]
    )
    write_whole(folder / f"grad_summary_{step}.csv", f"\ufeff{text.getvalue()}")


def _save(path: Path, array: Array) -> None:
    with whole_file(path, flush=False) as file:
        np.save(file, array, allow_pickle=False)
