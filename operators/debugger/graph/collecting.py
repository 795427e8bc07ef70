"""What a dump tells of the tensors of a compiled graph, collected by the C++ library while the graph runs.

A graph that waits for Python at each tensor takes much longer. So the library reads each once and queues what it found,
in the order in which they came; the queue is emptied when the graph has run, or after a second, so that a process that
is killed leaves a journal of all but the last second. Small tensors wait in the queue as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from asd.dumps.formats.statistics import Moments
from asd.dumps.record.writer import DumpWriter
from asd.operators.debugger.record import delivery
from asd.operators.debugger.record.delivery import Label

__all__ = ["Collector"]

_RECORD = np.dtype(
    [
        ("number", np.int64), ("label", np.int32, 4), ("crc", np.uint32), ("state", np.int32), ("dimensions", np.int64),
        ("sizes", np.int64, 8), ("moments", np.float64, 4), ("copy", np.uint64), ("dtype", "S16"),
    ]
)  # fmt: skip
"""One tensor of the queue, as `struct Record` in deliver.cpp."""
_SUMMARY, _COPY, _HANDED_OVER = 2, 3, 4  # its states, as there
_ROOM = 512  # records


class Collector:
    """Collects until somebody else is told to get the tensors.

    Args:
        writer: Says what is told of a tensor.
        kinds: Of labels: what of a call is told of. The others come without anything told.
        checks: Whether check sums are.
        empty: Called in a thread of MindSpore when the queue should be emptied: it has to use up `take`.

    Attributes:
        writer: As above.
    """

    def __init__(self, writer: DumpWriter, kinds: Iterable[int], empty: Callable[[], None], *, checks: bool) -> None:
        self.writer = writer
        self._kinds, self._checks, self._empty = sum(1 << kind for kind in kinds), checks, empty
        self._handed_over: dict[int, dict[str, Any]] = {}
        self._records = np.zeros(_ROOM, _RECORD)

    def begin(self) -> None:
        """From now on the tensors of compiled graphs are collected; what was left of others is forgotten."""
        for _ in self.take():
            pass
        self._handed_over.clear()
        delivery.collect(self._receive, self._kinds, checks=self._checks)

    def take(self) -> Iterator[tuple[Label, dict[str, Any] | None]]:
        """Empties the queue, in one thread at a time: the label of each tensor and what is told of it if it is read."""
        library = delivery.library
        while library is not None and (count := library.asd_take(self._records.ctypes.data, _ROOM)):
            columns = (self._records[name][:count].tolist() for name in _RECORD.fields or ())
            for number, label, crc, state, dimensions, sizes, found, copy, dtype in zip(*columns, strict=True):
                shape = tuple(sizes[:dimensions])
                told = self._handed_over.pop(number, None) if state == _HANDED_OVER else None
                if state == _SUMMARY:
                    check = f"{crc:08x}" if self._checks else None
                    name = delivery.dtype_name_of(dtype.decode())
                    told = self.writer.told_of(Moments(found[0], found[1], found[2], found[3], 0), check, shape, name)
                elif state == _COPY:
                    told = self.writer.told(*delivery.array_at(copy, shape, dtype))
                    library.asd_free(copy)
                yield tuple(label), told

    def _receive(self, number: int, label: Any, data: int, dimensions: int, sizes: Any, dtype: bytes) -> None:
        if label:
            array, name = delivery.array_at(data, tuple(sizes[:dimensions]), dtype)
            self._handed_over[number] = self.writer.told(array, name)
        else:
            self._empty()
