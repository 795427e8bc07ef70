"""A `.npy` file read piece by piece; nothing in it is unpickled, and its header must fit its size."""

from __future__ import annotations

import math
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from types import TracebackType
from typing import Any

import numpy as np
from numpy.lib import format as npy

from asd.errors import StateError
from asd.regular_file import open_regular

_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
_KINDS = "biufc"
_parsing = threading.Lock()  # NumPy parses a header as Python, which in Python 3.11 only one thread at a time may


class TensorFile:
    """Tensor in a file, as one run of elements."""

    path: Path  # the file
    dtype: np.dtype[Any]  # NumPy's type of the elements as stored; `uint16` for bfloat16
    shape: tuple[int, ...]  # sizes of the dimensions
    fortran = False  # whether the first index varies fastest
    is_bfloat16 = False  # whether the elements are the bit patterns of bfloat16
    _handle = -1
    _offset = 0

    @property
    def size(self) -> int:
        """Returns the number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Returns the bytes of all elements."""
        return self.size * self.dtype.itemsize

    def read(self, start: int, buffer: memoryview) -> None:
        """Fills `buffer` with the elements' bytes from `start` on, in the order of the file."""
        done = 0
        while done < len(buffer):
            count = os.preadv(self._handle, [buffer[done:]], self._offset + start + done)
            if not count:
                raise StateError(f"{self.path} ends before its last element.")
            done += count

    def pieces(self, elements: int) -> Iterator[np.ndarray[Any, Any]]:
        """Yields flat pieces in C order, whatever the order of the file."""
        if not self.fortran:
            for start in range(0, self.size, elements):
                piece = np.empty(min(elements, self.size - start), self.dtype)
                self.read(start * self.dtype.itemsize, piece.data.cast("B"))
                yield piece
            return
        with mmap.mmap(self._handle, 0, prot=mmap.PROT_READ) as pages:
            whole: np.ndarray[Any, Any] = np.ndarray(self.shape, self.dtype, pages, self._offset, order="F")
            for start in range(0, self.size, elements):
                yield whole.flat[start : start + elements]
                pages.madvise(mmap.MADV_DONTNEED)  # each piece touches nearly every page
            del whole

    def close(self) -> None:
        """Closes the file."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class NpyFile(TensorFile):
    """A `.npy` file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = open_regular(path, links=True)
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def _read_header(self) -> None:
        size = os.fstat(self._handle).st_size
        with os.fdopen(os.dup(self._handle), "rb") as file:
            try:
                version = npy.read_magic(file)  # type: ignore[no-untyped-call]
                if version not in _READERS:
                    raise ValueError(f"version {version} of the format")  # noqa: TRY301
                with _parsing:
                    shape, self.fortran, dtype = _READERS[version](file)  # type: ignore[no-untyped-call]
            except (ValueError, TypeError, EOFError, SyntaxError, TokenError, RecursionError, MemoryError) as error:
                reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
                raise StateError(f"{self.path} is no readable npy file: {reason}.") from None
            self._offset = file.tell()
        self.shape = tuple(int(size) for size in shape)
        if dtype.hasobject:
            raise StateError(f"{self.path} holds Python objects, which would have to be unpickled; that is refused.")
        # np.save writes the bfloat16 of other packages as two untyped bytes.
        self.is_bfloat16 = dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None
        self.dtype = np.dtype("<u2") if self.is_bfloat16 else dtype
        if self.dtype.kind not in _KINDS:
            raise StateError(f"{self.path} holds elements of the type {dtype}, which are no numbers.")
        if min(self.shape, default=0) < 0 or size != self._offset + self.nbytes:
            raise StateError(
                f"{self.path} is cut short or foreign: its header says {self.shape} of {dtype}, "
                f"{self.nbytes} bytes, and {max(0, size - self._offset)} follow."
            )
