"""The C++ library's part in debugging: tensors out of a running compiled graph, statistics, check sums."""

from __future__ import annotations

import ctypes
import math
import zlib
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np

from asd.evidence import crc, statistics
from asd.evidence.crc import widen_bfloat16
from asd.operators import kernel

__all__ = ["available", "crc32", "deliver_to", "dtype_name", "read_moments", "to_array"]

Label = tuple[int, int, int, int]
Receiver = Callable[[Label, np.ndarray, str], None]

_CALLBACK = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_int32),
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_char_p,
)
_NAMES = {"bfloat16": "BFloat16", "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}
_SMALL = 64  # elements up to which NumPy is as fast
_kept: list[Any] = []  # the callback of the library: it must live as long as the library may call it


def _load() -> ctypes.CDLL | None:
    library = kernel.library
    if library is None or not hasattr(library, "asd_crc32"):  # not built, or built before it could do this
        return None
    library.asd_deliver_to.argtypes, library.asd_deliver_to.restype = [_CALLBACK], None
    library.asd_moments.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    library.asd_moments.restype = ctypes.c_int64
    library.asd_crc32.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    library.asd_crc32.restype = ctypes.c_int64
    return library


_library = _load()


def available() -> bool:
    """Whether tensors can be taken out of a compiled graph here."""
    return _library is not None and bool(ms.get_context("device_target") == "CPU")


def deliver_to(receive: Receiver | None) -> None:
    """Who gets the tensors that the taps of compiled graphs see from now on.

    Args:
        receive: Called in a thread of MindSpore with the label of the tap, the tensor and the name of its type. The
            array is the graph's own memory: it is valid during the call only. None for nobody.
    """
    if _library is None:
        return
    callback = _CALLBACK() if receive is None else _CALLBACK(_unpack(receive))
    _library.asd_deliver_to(callback)
    _kept[:] = [callback]


def _unpack(receive: Receiver) -> Callable[..., None]:
    def callback(label: Any, data: int, dimensions: int, sizes: Any, dtype: bytes) -> None:
        name = dtype.decode()
        shape = tuple(sizes[:dimensions])
        array = _view(data, shape, "uint16" if name == "bfloat16" else name)
        if name == "bfloat16":
            array = widen_bfloat16(array)
        receive((label[0], label[1], label[2], label[3]), array, _NAMES.get(name, name.capitalize()))

    return callback


def _view(data: int, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size == 0 or not data:
        return np.empty(shape, dtype)
    memory: Any = (ctypes.c_uint8 * size).from_address(data)
    return np.ndarray(shape, dtype, memory)


def dtype_name(tensor: ms.Tensor) -> str:
    """The name of a tensor's type, as dumps write it."""
    return str(tensor.dtype)


def to_array(tensor: ms.Tensor) -> np.ndarray:
    """The elements of `tensor`; bfloat16 as float32. A view where that is possible."""
    if tensor.dtype == ms.bfloat16:
        tensor = tensor.astype(ms.float32)
    array: np.ndarray = tensor.asnumpy()
    return array


def read_moments(array: np.ndarray) -> statistics.Moments:
    """As `asd.evidence.statistics.moments`, from one read where the C++ library can."""
    if _library is not None and array.dtype == np.float32 and array.size > _SMALL:
        out = (ctypes.c_double * 4)()
        if _library.asd_moments(array.ctypes.data, array.size, out) == 0:
            return statistics.Moments(out[0], out[1], out[2], out[3], 0)
    return statistics.moments(array)


def crc32(array: np.ndarray) -> str:
    """As `asd.evidence.crc.crc32`, several times as fast where the C++ library and the processor can."""
    if _library is None or array.nbytes <= _SMALL:
        return crc.crc32(array)
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    found = ctypes.c_uint32(0)
    done = _library.asd_crc32(data.ctypes.data, data.size, ctypes.byref(found))
    return f"{zlib.crc32(data[done:].data, found.value):08x}"
