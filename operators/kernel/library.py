"""The C++ kernel: where its library is, and its functions through ctypes.

The library is built when the package is installed (see `kernel.cpp`). It is optional: without it, and on devices other
than the CPU, the same numbers come from MindSpore operators.
"""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import NamedTuple

import numpy as np

from asd.announce import last_word

__all__ = [
    "GATE_DTYPE",
    "MESSAGE",
    "SLOT_DTYPE",
    "STREAM_DTYPE",
    "CaptureStruct",
    "Header",
    "Schedule",
    "Statistics",
    "WrongCallStruct",
    "library",
    "library_path",
    "observe",
    "statistics",
]

_LOG = logging.getLogger("asd")
_NOT_BUILT = "the C++ kernel was not built; install the package where a C++ compiler is."
SLOT_DTYPE = np.dtype(
    [
        ("max_abs", np.float64), ("l2", np.float64), ("non_finite", np.int64), ("calls", np.int64),
        ("order", np.int64), ("worst_call", np.int64), ("mean_abs", np.float64), ("elements", np.int64),
        ("twins", np.uint64),
        ("limit_max", np.float64), ("limit_l2", np.float64), ("limit_mean", np.float64),
        ("least_max", np.float64), ("least_l2", np.float64), ("least_mean", np.float64), ("judged", np.int64),
        ("pairs", np.int64),
    ]
)  # fmt: skip
"""One slot of the kernel's table, as `struct Slot` in kernel.cpp."""
MESSAGE = 66
"""Numbers of what a gate tells the other ranks, as `kMessage` of kernel.cpp."""
GATE_DTYPE = np.dtype(
    [
        *((name, np.int64) for name in ("armed", "refused", "announced", "unread", "overrun")),
        *((name, np.float32, (MESSAGE,)) for name in ("message", "sums")),
    ]
)
"""What the host and one gate share, as `struct Gate` in kernel.cpp."""
STREAM_DTYPE = np.dtype([("dropout", np.int64), ("node", np.uint64), ("state", np.uint64)])
"""One random stream of a dropout, as `struct Stream` in dropout.cpp."""


class Header(ctypes.Structure):
    """What the host and the library share, as `struct Header` in kernel.cpp."""

    _fields_ = (
        ("used", ctypes.c_int64),
        ("replaying", ctypes.c_int64),
        ("refused", ctypes.c_int64),
        ("checks", ctypes.c_int64),
        ("unsupported", ctypes.c_int64),
        ("capture_bytes", ctypes.c_int64),
        ("nanoseconds", ctypes.c_int64),
    )


class CaptureStruct(ctypes.Structure):
    """The gradient that the kernel kept, as `struct Capture` in kernel.cpp."""

    _fields_ = (
        ("slot", ctypes.c_int64),
        ("call", ctypes.c_int64),
        ("elements", ctypes.c_int64),
        ("offset", ctypes.c_int64),
        ("kept", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("dimensions", ctypes.c_int64),
        ("shape", ctypes.c_int64 * 8),
        ("dtype", ctypes.c_char * 16),
        ("data", ctypes.c_void_p),
    )


class _Kept(ctypes.Structure):
    """One tensor of a call, as `struct Kept` in wrong_call.cpp."""

    _fields_ = (
        ("dimensions", ctypes.c_int64),
        ("shape", ctypes.c_int64 * 8),
        ("bytes", ctypes.c_int64),
        ("dtype", ctypes.c_char * 16),
        ("data", ctypes.c_void_p),
    )


class WrongCallStruct(ctypes.Structure):
    """The call of an operator whose result was wrong, as `struct WrongCall` in wrong_call.cpp."""

    _fields_ = (
        ("slot", ctypes.c_int64),
        ("call", ctypes.c_int64),
        ("count", ctypes.c_int64),
        ("tensors", _Kept * 8),
    )


class Schedule(ctypes.Structure):
    """Which products and means are checked, written by the host between two steps; `struct Schedule` of schedule.h.

    Attributes:
        every: Each site is due in one step of so many; 0 for never.
        turn: Number of the step.
        all: 1 when every site is due.
        tolerance: A value of `TOLERANCES`.
        checked: Products checked in this process so far.
        dismissed: Of these, how many exceeded the tolerance and were right when computed again.
        unjudged: Products that could not be judged: an operand is not finite, or shapes or types are unknown.
        nanoseconds: What checks that were due took in this process so far.
    """

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("every", "turn", "all", "tolerance", "checked", "dismissed", "unjudged", "nanoseconds")
    )


class Statistics(NamedTuple):
    """The four numbers of one tensor.

    Attributes:
        max_abs: Largest magnitude among the finite elements.
        sum_squares: Sum of squares of all elements, in float64; `inf` or `nan` when an element is.
        non_finite: Number of elements that are `inf` or `nan`.
        sum_abs: Sum of magnitudes of all elements, in float64; `inf` or `nan` when an element is.
    """

    max_abs: float
    sum_squares: float
    non_finite: int
    sum_abs: float


def library_path() -> Path | None:
    """The shared library beside this file, or None when it was not built."""
    return next(iter(sorted(Path(__file__).resolve().parent.glob("_kernel*.so"))), None)


_STRUCTURES = {
    "Slot": SLOT_DTYPE.itemsize,
    "Header": ctypes.sizeof(Header),
    "Capture": ctypes.sizeof(CaptureStruct),
    "Schedule": ctypes.sizeof(Schedule),
    "Stream": STREAM_DTYPE.itemsize,
    "Gate": GATE_DTYPE.itemsize,
    "WrongCall": ctypes.sizeof(WrongCallStruct),
}
"""What both sides must mean the same by, in bytes."""


def _misfit(loaded: ctypes.CDLL) -> str:
    """Why what the library writes is not what is read here; empty if it is."""
    if not hasattr(loaded, "asd_layout"):
        return "it does not tell its structures"
    loaded.asd_layout.restype = ctypes.POINTER(ctypes.c_int64)
    told: list[int] = []
    while size := loaded.asd_layout()[len(told)]:
        told.append(size)
    if len(told) != len(_STRUCTURES):
        return f"it has {len(told)} structures, not {len(_STRUCTURES)}"
    wrong = [
        f"{name} has {size} bytes, not {own}"
        for (name, own), size in zip(_STRUCTURES.items(), told, strict=True)
        if size != own
    ]
    return ", ".join(wrong)


def _declare(loaded: ctypes.CDLL) -> None:
    """Says what its functions take and return.

    Raises:
        AttributeError: It lacks one of them.
    """
    loaded.asd_header.restype = ctypes.POINTER(Header)
    loaded.asd_slots.restype = ctypes.c_void_p
    loaded.asd_capacity.restype = ctypes.c_int64
    loaded.asd_capture.restype = ctypes.POINTER(CaptureStruct)
    loaded.asd_wrong_call.restype = ctypes.POINTER(WrongCallStruct)
    loaded.asd_release_wrong_call.argtypes, loaded.asd_release_wrong_call.restype = [], None
    loaded.asd_hashes.restype = ctypes.c_void_p
    loaded.asd_streams.restype = ctypes.c_void_p
    loaded.asd_used_streams.restype = ctypes.POINTER(ctypes.c_int64)
    loaded.asd_first_states.restype = ctypes.c_void_p
    loaded.asd_stream_capacity.restype = ctypes.c_int64
    loaded.asd_hash.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    loaded.asd_hash.restype = ctypes.c_uint64
    loaded.asd_read_blocks.argtypes = [
        ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p
    ]  # fmt: skip
    loaded.asd_read_blocks.restype = None
    loaded.asd_seal.argtypes = [
        ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
        ctypes.c_int64, ctypes.c_int64,
    ]  # fmt: skip
    loaded.asd_seal.restype = None
    loaded.asd_seal_state.argtypes = [ctypes.c_int64, ctypes.c_void_p]
    loaded.asd_seal_state.restype = ctypes.c_int64
    loaded.asd_do_not_judge.argtypes = [ctypes.c_int64, ctypes.c_int64]
    loaded.asd_do_not_judge.restype = None
    loaded.asd_unseal.argtypes = [ctypes.c_int64]
    loaded.asd_unseal.restype = None
    loaded.asd_ask_for_samples.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
    loaded.asd_ask_for_samples.restype = None
    loaded.asd_get_samples.argtypes = [ctypes.c_int64, ctypes.c_void_p]
    loaded.asd_get_samples.restype = ctypes.c_int64
    loaded.asd_drop_samples.argtypes = [ctypes.c_int64]
    loaded.asd_drop_samples.restype = None
    loaded.asd_release_capture.argtypes = []
    loaded.asd_release_capture.restype = None
    loaded.asd_statistics.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_void_p]
    loaded.asd_statistics.restype = ctypes.c_int64
    loaded.asd_observe_buffer.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p]
    loaded.asd_observe_buffer.restype = None
    loaded.asd_observe_array.argtypes = [
        ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int64), ctypes.c_char_p
    ]  # fmt: skip
    loaded.asd_observe_array.restype = None
    loaded.asd_last_word.argtypes = [ctypes.c_char_p, ctypes.c_int64]
    loaded.asd_last_word.restype = None
    loaded.asd_take_back.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    loaded.asd_take_back.restype = None
    loaded.asd_have_read.argtypes = [ctypes.c_int64]
    loaded.asd_have_read.restype = None
    for name in ("asd_keep_slots", "asd_restore_slots"):
        getattr(loaded, name).argtypes, getattr(loaded, name).restype = [], None
    for name in ("asd_gates", "asd_gate_of_guards"):
        getattr(loaded, name).restype = ctypes.c_void_p
    for name in ("asd_gate_capacity", "asd_guard_capacity"):
        getattr(loaded, name).restype = ctypes.c_int64
    loaded.asd_tell_unread.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    loaded.asd_tell_unread.restype = None


def _load() -> ctypes.CDLL | None:
    path = library_path()
    if path is None:
        return None
    loaded = None
    try:
        loaded = ctypes.CDLL(str(path))
        misfit = _misfit(loaded)
        if not misfit:
            _declare(loaded)
    except (OSError, AttributeError) as error:  # the latter names a function that it lacks
        misfit = str(error)
    if loaded is None or misfit:
        # Not an error: MindSpore operators make the same numbers, and a training must not end by its detector.
        _LOG.warning(
            "the C++ kernel %s is of another version (%s); MindSpore operators do its work. Install asd anew",
            path, misfit,
        )  # fmt: skip
        return None
    return loaded


library = _load()
"""The loaded library, or None."""
if library is not None:
    last_word.hook = library.asd_last_word


def observe(slot: int, array: np.ndarray) -> None:
    """Checks `array` as one call of the checkpoint in `slot`, as the tap of a compiled graph does.

    Args:
        slot: Number of the slot.
        array: Any shape, contiguous; float16, float32 or float64, another type is counted as unsupported.

    Raises:
        RuntimeError: The kernel was not built.
    """
    if library is None:
        raise RuntimeError(_NOT_BUILT)
    sizes = (ctypes.c_int64 * array.ndim)(*array.shape)
    library.asd_observe_array(slot, array.ctypes.data, array.ndim, sizes, array.dtype.name.encode())


def statistics(array: np.ndarray) -> Statistics:
    """Largest magnitude, sums of squares and magnitudes, count of non-finite elements, from one read of `array`.

    Args:
        array: Any shape; float16, float32 or float64.

    Raises:
        RuntimeError: The kernel was not built.
        TypeError: `array` has another type.

    >>> statistics(np.array([3.0, -4.0, np.inf], np.float32))
    Statistics(max_abs=4.0, sum_squares=inf, non_finite=1, sum_abs=inf)
    """
    if library is None:
        raise RuntimeError(_NOT_BUILT)
    data = np.ascontiguousarray(array)
    out = (ctypes.c_double * 4)()
    if library.asd_statistics(data.ctypes.data, data.size, data.dtype.name.encode(), out) != 0:
        raise TypeError(f"the kernel reads float16, float32 and float64, not {data.dtype.name}.")
    return Statistics(out[0], out[1], int(out[2]), out[3])
