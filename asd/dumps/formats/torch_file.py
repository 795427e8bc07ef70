"""A tensor in the zip file that `torch.save` writes, read without torch and without unpickling anything.

Of the pickle in the archive only the description of one tensor is taken: its opcodes are listed (`pickletools.genops`
runs nothing), and names and calls stay plain records. Whatever is not that description is refused. This is done by hand
for a `pickle.Unpickler`, even one that finds no class, takes as much memory as a file of nine bytes tells it to.
"""

from __future__ import annotations

import os
import pickletools
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from asd.dumps.formats.npy_file import TensorFile
from asd.errors import StateError

__all__ = ["TorchFile"]

_TYPES = {
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
    "ComplexFloatStorage": "<c8",
    "ComplexDoubleStorage": "<c16",
}
_LARGEST_PICKLE = 1 << 16
_LOCAL_HEADER = 30
_MARK = object()


class _Name(NamedTuple):
    name: str


class _Call(NamedTuple):
    function: object
    arguments: object


class _Stored(NamedTuple):
    reference: object


class TorchFile(TensorFile):
    """A `.pt` file that holds one tensor.

    Raises:
        StateError: It holds something else, or is cut short.
        OSError: It can't be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(self._handle).st_mode):
                raise StateError(f"{path} is not a regular file.")  # noqa: TRY301
            with os.fdopen(os.dup(self._handle), "rb") as file, zipfile.ZipFile(file) as archive:
                self._read_archive(archive)
        except (zipfile.BadZipFile, ValueError, KeyError, IndexError, struct.error, NotImplementedError) as error:
            self.close()
            if isinstance(error, StateError):
                raise
            raise StateError(f"{path} is no file of one tensor that torch.save wrote: {error}.") from None
        except BaseException:
            self.close()
            raise

    def _read_archive(self, archive: zipfile.ZipFile) -> None:
        description = next((info for info in archive.infolist() if info.filename.endswith("/data.pkl")), None)
        if description is None or description.file_size > _LARGEST_PICKLE:
            raise StateError(f"{self.path} holds no description of a tensor.")
        found = _read_description(archive.read(description))
        kind, key, count, offset, self.shape, strides = _tensor_of(found)
        self.dtype, self.is_bfloat16 = np.dtype(_TYPES[kind]), kind == "BFloat16Storage"
        info = archive.getinfo(f"{description.filename.removesuffix('data.pkl')}data/{key}")
        last = offset + sum((size - 1) * stride for size, stride in zip(self.shape, strides, strict=True)) + 1
        if (
            info.compress_type != zipfile.ZIP_STORED
            or info.file_size < count * self.dtype.itemsize
            or (self.size and not 0 < last <= count)
        ):
            raise StateError(f"{self.path} is cut short or foreign: its elements are not where it says.")
        if self.size and not _is_dense(self.shape, strides):
            self.fortran = _is_dense(self.shape[::-1], strides[::-1])
            if not self.fortran:
                raise StateError(f"{self.path} holds a view with gaps between its elements, which can't be compared.")
        header = os.pread(self._handle, _LOCAL_HEADER, info.header_offset)
        name, extra = struct.unpack("<26x2H", header)
        self._offset = info.header_offset + _LOCAL_HEADER + name + extra + offset * self.dtype.itemsize


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _tensor_of(found: Any) -> tuple[str, str, int, int, tuple[int, ...], tuple[int, ...]]:
    if isinstance(found, _Call) and found.function == _Name("torch._utils _rebuild_parameter"):
        found = _tuple(found.arguments)[0]
    if not isinstance(found, _Call) or found.function != _Name("torch._utils _rebuild_tensor_v2"):
        raise ValueError("its pickle describes something else")
    storage, offset, shape, strides, *_ = _tuple(found.arguments)
    if not isinstance(storage, _Stored):
        raise ValueError("its elements are not stored beside the pickle")  # noqa: TRY004
    word, kind, key, _, count = _tuple(storage.reference)
    numbers = (offset, count, *_tuple(shape), *_tuple(strides))
    if word != "storage" or not all(type(number) is int and number >= 0 for number in numbers):
        raise ValueError("its sizes are not whole numbers")
    if len(shape) != len(strides) or not isinstance(kind, _Name) or not isinstance(key, str):
        raise ValueError("its description is of another form")
    return kind.name.removeprefix("torch "), key, count, offset, tuple(shape), tuple(strides)


def _tuple(found: object) -> tuple[Any, ...]:
    if not isinstance(found, tuple):
        raise ValueError("its description is of another form")  # noqa: TRY004
    return found


def _read_description(content: bytes) -> object:
    """What the opcodes put together: tuples, numbers, texts and records, nothing that runs."""
    machine = _Machine()
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "STOP":
            break
        machine.take(opcode.name, argument)
    return machine.stack.pop()


class _Machine:
    """The few opcodes a tensor's description is made of."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def take(self, name: str, argument: Any) -> None:
        """Does what one opcode says."""
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _LITERALS:
            self.stack.append(argument)
        elif name in _BUILDERS:
            taken, build = _BUILDERS[name]
            self.stack.append(build(self._pop(taken)))
        elif name == "GLOBAL":
            self.stack.append(_Name(argument))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self.stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self.stack.append(self._memo[argument])
        elif name != "PROTO":
            raise ValueError(f"its pickle has the opcode {name}, which no tensor needs")

    def _pop(self, count: int) -> list[Any]:
        """The last `count` values; those after the last mark for -1."""
        if count < 0:
            at = len(self.stack) - 1 - self.stack[::-1].index(_MARK)
            taken = self.stack[at + 1 :]
            del self.stack[at:]
            return taken
        if count > len(self.stack):
            raise ValueError("its pickle takes more than it has")
        taken = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        return taken


_LITERALS = {"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"}
_CONSTANTS: dict[str, object] = {
    "MARK": _MARK,
    "NEWTRUE": True,
    "NEWFALSE": False,
    "NONE": None,
    "EMPTY_TUPLE": (),
    "EMPTY_DICT": (),
}
_BUILDERS: dict[str, tuple[int, Callable[[list[Any]], object]]] = {
    "TUPLE": (-1, tuple),
    "TUPLE1": (1, tuple),
    "TUPLE2": (2, tuple),
    "TUPLE3": (3, tuple),
    "REDUCE": (2, lambda taken: _Call(*taken)),
    "BINPERSID": (1, lambda taken: _Stored(*taken)),
    "BUILD": (2, lambda taken: taken[0]),
}
