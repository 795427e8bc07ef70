"""Recording of a step's values into its dump."""

from typing import Any

import numpy as np

from asd.dumps.record.writer import DumpWriter
from asd.operators.debugger.record.values import Path, encode

_SLOTS = {"input_args": "input", "input_kwargs": "kwargs"}


class DumpRecording:
    """Everything goes into a dump.

    Args:
        writer: Of the dump.
    """

    def __init__(self, writer: DumpWriter) -> None:
        self._writer = writer

    def open(self, name: str, parent: str | None, frames: tuple[str, ...], attributes: dict[str, Any] | None) -> None:
        """Writes where an entry belongs, its call stack, and the attributes of an operator."""
        self._writer.parent(name, parent)
        if frames:
            self._writer.stack(name, frames)
        if attributes is not None:
            self._writer.value(name, "attributes", [], attributes)

    def put(self, name: str, part: str, path: Path, value: Any) -> None:
        """Writes a value."""
        file_name = _file_name_of(name, part, path)
        told = encode(value, lambda array, dtype: self._writer.tensor(file_name, array, dtype, name))
        self._writer.value(name, part, path, told)

    def put_array(self, name: str, part: str, path: Path, array: np.ndarray, dtype: str) -> None:
        """Writes a tensor given as an array that is valid during the call only."""
        self._writer.value(name, part, path, self._writer.tensor(_file_name_of(name, part, path), array, dtype, name))

    def close(self, name: str) -> None:
        """Does nothing: values are written as they come."""

    def drop(self, name: str) -> None:
        """Leaves out an entry that was written."""
        self._writer.drop(name)

    def note_optimizer(self, settings: dict[str, Any]) -> None:
        """Writes what an optimizer of the step was made with."""
        self._writer.optimizer |= settings

    def finish(self) -> None:
        """Ends the dump."""
        self._writer.finish()


def _file_name_of(name: str, part: str, path: Path) -> str:
    """Returns the name of a tensor's file without its ending."""
    if ".parameters_grad." in name:
        return f"{name}.{part}"
    return ".".join([name, _SLOTS.get(part, part), *map(str, path)])
