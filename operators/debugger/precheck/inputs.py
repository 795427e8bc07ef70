"""The inputs of a call: the tensors a dump holds, or random ones between the smallest and the largest element."""

import math
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from asd.dumps.formats.dump_folder import Dump, tensor_file
from asd.dumps.formats.npy_file import NpyFile, TensorFile
from asd.dumps.formats.slots import Slot
from asd.errors import StateError

SEED = 42
LARGEST = 1 << 28  # elements of one tensor; a larger one is not made
_MOST_DIMENSIONS = 32

_SAME = "Bool Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float16 Float32 Float64 Complex64 Complex128"
DTYPES = {name: name.lower() for name in _SAME.split()} | {"BFloat16": "float32"}
"""Types as dumps name them, and NumPy's; bfloat16 is held as the float32 of equal value."""


@dataclass(frozen=True)
class Value:
    """The elements of a tensor."""

    array: np.ndarray[Any, Any]  # in the type that `DTYPES` says
    dtype: str  # as dumps name it


class Inputs:
    """Makes values of descriptions.

    Args:
        path: The dump.json; tensors lie in `dump_tensor_data` beside it.
        real: Whether tensors are read; otherwise they are made.
    """

    def __init__(self, path: Path, *, real: bool) -> None:
        self._dump = Dump(path, path.parent / "dump_tensor_data")
        self.real = real

    def generator(self, name: str) -> np.random.Generator:
        """Returns the generator of the call `name`, independent of others: a resumed check makes the same inputs."""
        return np.random.default_rng([SEED, zlib.crc32(name.encode())])

    def value(self, described: Slot, random: np.random.Generator) -> Value:
        """Returns the elements of a tensor; the sentence of a StateError has no full stop."""
        if described.dtype not in DTYPES:
            raise StateError(f"a tensor of the type {described.dtype[:40]!r} can't be made")
        if len(described.shape) > _MOST_DIMENSIONS or math.prod(described.shape) > LARGEST:
            most = f"more than {LARGEST} elements or {_MOST_DIMENSIONS} dimensions"
            raise StateError(f"a tensor of the shape {str(described.shape)[:80]} has {most}")
        return Value(self._read(described) if self.real else _generate(described, random), described.dtype)

    def _read(self, described: Slot) -> np.ndarray[Any, Any]:
        try:
            path = tensor_file(self._dump, described)
            if path is None:
                raise StateError("the dump has no file of a tensor")  # noqa: TRY301
            with NpyFile(path) as file:
                return _whole(file, described)
        except OSError as error:
            raise StateError(f"{described.data_name} can't be read: {error.strerror}") from None
        except StateError as error:
            raise StateError(str(error).rstrip(".")) from None


def _whole(file: TensorFile, described: Slot) -> np.ndarray[Any, Any]:
    dtype = np.dtype(DTYPES[described.dtype])
    if (file.dtype.newbyteorder("="), file.shape) != (dtype, described.shape) or file.is_bfloat16:
        raise StateError(
            f"{file.path.name} holds {file.dtype} {list(file.shape)}, "
            f"and the dump says {described.dtype} {list(described.shape)}"
        )
    pieces = list(file.pieces(max(file.size, 1)))
    array: np.ndarray[Any, Any] = np.concatenate(pieces) if pieces else np.empty(0, dtype)
    return array.astype(dtype, copy=False).reshape(described.shape)


def _generate(described: Slot, random: np.random.Generator) -> np.ndarray[Any, Any]:
    dtype, shape = np.dtype(DTYPES[described.dtype]), described.form.shape
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if dtype.kind == "c":
        raise StateError("the statistics of a complex tensor do not determine its values")
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    high, low = described.values[:2]
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise StateError(f"no values lie between Min {low} and Max {high}")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        # Statistics are in float32, so the largest integer may have been rounded up.
        first, last = max(int(low), int(limits.min)), min(int(high), int(limits.max))
        if first > last:
            raise StateError(f"no {described.dtype} lies between Min {low} and Max {high}")
        return random.integers(first, last, shape, dtype=dtype, endpoint=True)
    share = random.random(shape)
    with np.errstate(over="ignore"):
        values = np.clip(low * (1.0 - share) + high * share, low, high).astype(dtype)
    return to_bfloat16(values) if described.dtype == "BFloat16" else values


def to_bfloat16(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the nearest bfloat16 of each float32, ties to even, as float32; NaN stays NaN."""
    bits = np.asarray(values, np.float32).reshape(-1).view(np.uint32)  # of no dimension there is no view
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32).reshape(np.shape(values))
    return np.where(np.isnan(values), values, rounded).astype(np.float32)
