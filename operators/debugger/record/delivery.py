"""The C++ library's part in debugging: tensors out of a running compiled graph, statistics, check sums."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np

from asd.dumps.formats import statistics
from asd.dumps.record import crc
from asd.dumps.record.crc import widen_bfloat16
from asd.operators.kernel import library as kernel

__all__ = [
    "Label",
    "array_at",
    "available",
    "collect",
    "crc32",
    "deliver_to",
    "dtype_name",
    "dtype_name_of",
    "library",
    "read_moments",
    "summarise",
    "to_array",
]

Label = tuple[int, int, int, int]
Receiver = Callable[[Label, np.ndarray, str], None]

CALLBACK = ctypes.CFUNCTYPE(
    None,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_int32),
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_char_p,
)
"""As `Deliver` in deliver.cpp."""
_NAMES = {"bfloat16": "BFloat16", "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64"}
_SMALL = 64  # elements up to which NumPy is as fast
Raw = Callable[[int, Any, int, int, Any, bytes], None]
"""What the library calls: number of the record, label, address, dimensions, their sizes, type."""
_nobody: Raw = lambda *_: None  # noqa: E731
_raw: list[Raw] = [_nobody]
_callback = CALLBACK(lambda *told: _raw[0](*told))
"""The only one: a thread of MindSpore may be about to call what it found before another was to get the tensors."""


def _load() -> ctypes.CDLL | None:
    loaded = kernel.library
    if loaded is None or not hasattr(loaded, "asd_summarise"):  # not built, or built before it could do this
        return None
    number, address = ctypes.c_int64, ctypes.c_void_p
    for name, result, arguments in (
        ("asd_deliver_to", None, [CALLBACK, number, number, number]),
        ("asd_take", number, [address, number]),
        ("asd_free", None, [address]),
        ("asd_moments", number, [address, number, address]),
        ("asd_crc32", number, [address, number, address]),
        ("asd_summarise", number, [address, number, ctypes.c_char_p, address, address]),
    ):
        function = getattr(loaded, name)
        function.argtypes, function.restype = arguments, result
    return loaded


library = _load()
"""The C++ library, or None where it was not built."""


def available() -> bool:
    """Whether tensors can be taken out of a compiled graph here."""
    return library is not None and bool(ms.get_context("device_target") == "CPU")


def deliver_to(receive: Receiver | None) -> None:
    """Who gets the tensors that the taps of compiled graphs see from now on.

    Args:
        receive: Called in a thread of MindSpore with the label of the tap, the tensor and the name of its type. The
            array is the graph's own memory: it is valid during the call only. None for nobody.
    """
    if library is None:
        return
    _raw[0] = _nobody if receive is None else _unpack(receive)
    library.asd_deliver_to(CALLBACK() if receive is None else _callback, 0, 0, 0)


def collect(receive: Raw, kinds: int, *, checks: bool) -> None:
    """The library queues what is told of the tensors that the taps see from now on; see `Collector`.

    Args:
        receive: Gets what the library can't tell, or, without a label, a request to empty the queue.
        kinds: A bit for each kind of label whose tensors are read.
        checks: Whether their check sums are taken.
    """
    if library is None:
        return
    _raw[0] = receive
    library.asd_deliver_to(_callback, 1, kinds, int(checks))


def _unpack(receive: Receiver) -> Raw:
    def callback(_: int, label: Any, data: int, dimensions: int, sizes: Any, dtype: bytes) -> None:
        receive((label[0], label[1], label[2], label[3]), *array_at(data, tuple(sizes[:dimensions]), dtype))

    return callback


def array_at(data: int, shape: tuple[int, ...], dtype: bytes) -> tuple[np.ndarray, str]:
    """A tensor in the memory of MindSpore or of the library, and the name of its type as dumps write it.

    Args:
        data: Its address.
        shape: Of the tensor.
        dtype: The name of its type, as MindSpore hands it to the library.

    Returns:
        A view, but a copy of a bfloat16 tensor, widened to float32; and the name.
    """
    name = dtype.decode()
    array = _view(data, shape, "uint16" if name == "bfloat16" else name)
    if name == "bfloat16":
        array = widen_bfloat16(array)
    return array, dtype_name_of(name)


def dtype_name_of(name: str) -> str:
    """The name of a type as dumps write it, from what the library calls it."""
    return _NAMES.get(name, name.capitalize())


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
    """As `asd.dumps.formats.statistics.moments`, from one read where the C++ library can."""
    if library is not None and array.dtype == np.float32 and array.size > _SMALL:
        out = (ctypes.c_double * 4)()
        if library.asd_moments(array.ctypes.data, array.size, out) == 0:
            return statistics.Moments(out[0], out[1], out[2], out[3], 0)
    return statistics.moments(array)


def crc32(array: np.ndarray) -> str:
    """As `asd.dumps.record.crc.crc32`, several times as fast where the C++ library and the processor can."""
    if library is None or array.nbytes <= _SMALL:
        return crc.crc32(array)
    data = np.ascontiguousarray(array)
    found = ctypes.c_uint32(0)
    if library.asd_crc32(data.ctypes.data, data.nbytes, ctypes.byref(found)) != 0:
        return crc.crc32(array)
    return f"{found.value:08x}"


def summarise(array: np.ndarray, check: bool) -> tuple[statistics.Moments, str | None] | None:  # noqa: FBT001
    """The moments of `array`, and its check sum, from one read.

    Args:
        array: Any shape and type.
        check: Whether its check sum is wanted.

    Returns:
        None where `read_moments` and `crc32` must be asked.
    """
    if library is None or array.dtype != np.float32 or array.size <= _SMALL or not array.flags.c_contiguous:
        return None
    out, found = (ctypes.c_double * 4)(), ctypes.c_uint32(0)
    pointer = ctypes.byref(found) if check else None
    if library.asd_summarise(array.ctypes.data, array.size, b"float32", out, pointer) != 0:
        return None
    return statistics.Moments(out[0], out[1], out[2], out[3], 0), f"{found.value:08x}" if check else None
