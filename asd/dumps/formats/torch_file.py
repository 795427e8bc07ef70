"""Reads a tensor from the zip file of `torch.save`, without torch and without unpickling.

Only the type and the whole numbers are taken from the pickle in the archive, in their order: the number of elements,
the offset, the sizes and the strides. Its opcodes are listed (`pickletools.genops` runs nothing). A file that does not
describe exactly one tensor is refused.
"""

import math
import os
import pickletools
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np

from asd.dumps.formats.npy_file import TensorFile
from asd.errors import StateError
from asd.regular_file import open_regular

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
_NAMES = {
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    "collections OrderedDict",
    *(f"torch {kind}" for kind in _TYPES),
}
_LARGEST_PICKLE = 1 << 16
_LOCAL_HEADER = 30
_MOST_DIMENSIONS = 64


class TorchFile(TensorFile):
    """A `.pt` file with one tensor."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = open_regular(path, links=True)
        try:
            with os.fdopen(os.dup(self._handle), "rb") as file, zipfile.ZipFile(file) as archive:
                self._read_archive(archive)
        except (zipfile.BadZipFile, zlib.error, ValueError, KeyError, EOFError, struct.error, RuntimeError) as error:
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
        kind, (count, offset, *rest) = _description(archive.read(description))
        self.shape, strides = tuple(rest[: len(rest) // 2]), tuple(rest[len(rest) // 2 :])
        self.dtype, self.is_bfloat16 = np.dtype(_TYPES[kind]), kind == "BFloat16Storage"
        info = archive.getinfo(f"{description.filename.removesuffix('data.pkl')}data/0")
        self.fortran = not _is_dense(self.shape, strides)
        if self.fortran and not _is_dense(self.shape[::-1], strides[::-1]):
            raise StateError(f"{self.path} holds a view with gaps between its elements, which can't be compared.")
        if (
            info.compress_type != zipfile.ZIP_STORED
            or info.file_size < count * self.dtype.itemsize
            or count < offset + self.size
        ):
            raise StateError(f"{self.path} is cut short or foreign: its elements are not where it says.")
        name, extra = struct.unpack("<26x2H", os.pread(self._handle, _LOCAL_HEADER, info.header_offset))
        self._offset = info.header_offset + _LOCAL_HEADER + name + extra + offset * self.dtype.itemsize


def _description(content: bytes) -> tuple[str, list[int]]:
    """Returns the type of the elements, and the whole numbers of a tensor's pickle."""
    numbers: list[int] = []
    kinds = []
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "GLOBAL":
            name = str(argument)
            if name not in _NAMES:
                raise ValueError(f"its pickle names {name[:60]}, which no tensor needs")
            kinds += [name.removeprefix("torch ")] if name.endswith("Storage") else []
        elif opcode.name in ("BININT", "BININT1", "BININT2", "LONG1") and isinstance(argument, int):
            numbers.append(argument)
    if len(kinds) != 1 or len(numbers) not in range(2, 2 + 2 * _MOST_DIMENSIONS + 1, 2) or min(numbers) < 0:
        raise ValueError("its pickle describes something else")
    return kinds[0], numbers


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Returns whether the last index varies fastest, without gaps."""
    expected = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    pairs = zip(shape, strides, expected, strict=True)
    return 0 in shape or all(size == 1 or stride == dense for size, stride, dense in pairs)
