"""A run against the check sums of a healthy one: only the calls that differ are kept."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np

from asd.dumps.record.crc import crc32
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.healthy_crcs import StepLedger
from asd.dumps.record.writer import DumpWriter
from asd.operators.debugger.record.recording import file_name_of
from asd.operators.debugger.record.values import Path as Place
from asd.operators.debugger.record.values import encode

__all__ = ["DifferenceCounter", "LedgerRecording"]

_LOG = logging.getLogger("asd")
_INPUTS = ("input_args", "input_kwargs", "input", "parameters")


class DifferenceCounter:
    """Calls of a training that differed from the healthy run.

    Args:
        most: How many are kept; -1: all.
    """

    def __init__(self, most: int) -> None:
        self.count = 0
        self._most = most

    @property
    def is_enough(self) -> bool:
        """Whether no more are kept."""
        return self._most != -1 and self.count >= self._most


class LedgerRecording:
    """Compares one step. A call whose tensors all agree leaves nothing behind.

    Args:
        config: Of the dump that keeps what differs.
        folder: Of the step and rank; nothing is made of it until something differs.
        ledger: The same step and rank of the healthy run.
        counter: Of the training.
    """

    def __init__(self, config: DebuggerConfig, folder: Path, ledger: StepLedger, counter: DifferenceCounter) -> None:
        self._config, self._folder, self._ledger, self._counter = config, folder, ledger, counter
        self._opened: dict[str, tuple[str | None, tuple[str, ...], dict[str, Any] | None]] = {}
        self._values: dict[str, list[tuple[str, Place, Any]]] = {}
        self._differs: dict[str, list[str]] = {}
        self._compared: set[str] = set()
        self._different: dict[str, str] = {}  # the name, and what is said of it
        self._kept: set[str] = set()
        self._writer: DumpWriter | None = None

    def open(self, name: str, parent: str | None, frames: tuple[str, ...], attributes: dict[str, Any] | None) -> None:
        """See `Recording`."""
        self._opened[name] = (parent, frames, attributes)

    def put(self, name: str, part: str, path: Place, value: Any) -> None:
        """See `Recording`."""
        told = encode(value, lambda array, dtype: self._compare(name, part, path, array, dtype))
        self._values.setdefault(name, []).append((part, path, told))

    def put_array(self, name: str, part: str, path: Place, array: np.ndarray, dtype: str) -> None:
        """See `Recording`."""
        told = self._compare(name, part, path, array, dtype)
        self._values.setdefault(name, []).append((part, path, told))

    def close(self, name: str) -> None:
        """See `Recording`."""
        self._compared.add(name)
        values, differs = self._values.pop(name, []), self._differs.pop(name, [])
        parent, frames, attributes = self._opened.pop(name, (None, (), None))
        if not differs:
            return
        if name not in self._different:
            inputs = any(part.startswith(_INPUTS) for part in differs)
            how = "is given something else" if inputs else "computes something else of the same inputs"
            self._different[name] = how if name in self._ledger else "is not in the healthy run"
        writer = self._writer
        if writer is None or name not in self._kept:
            return
        writer.parent(name, parent)
        if frames:
            writer.stack(name, frames)
        for part, path, value in values:
            writer.value(name, part, path, value)
        writer.value(name, "differs", [], differs)
        if attributes is not None:
            writer.value(name, "attributes", [], attributes)

    def drop(self, name: str) -> None:
        """See `Recording`."""
        for known in (self._opened, self._values, self._differs):
            known.pop(name, None)
        if self._writer is not None and name in self._kept:
            self._writer.drop(name)

    def finish(self) -> None:
        """See `Recording`."""
        for name in list(self._values):
            self.close(name)
        if self._writer is not None:
            self._writer.finish()
        where = self._folder.parent.name
        if self._different:
            first, how = next(iter(self._different.items()))
            _LOG.warning(
                "%s: %d of %d calls differ from the healthy run in %s; the first is %s, which %s.",
                where, len(self._different), len(self._compared), self._ledger.path.parent, first, how,
            )  # fmt: skip
        missing = len(self._ledger) - sum(name in self._ledger for name in self._compared)
        if missing:
            _LOG.warning("%s: %d calls of the healthy run in %s were not made or not recorded.",
                         where, missing, self._ledger.path.parent)  # fmt: skip

    def _compare(self, name: str, part: str, path: Place, array: np.ndarray, dtype: str) -> dict[str, Any]:
        crc = crc32(array)
        told: dict[str, Any] = {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(array.shape), "md5": crc}
        if self._ledger.is_same(name, part, path, crc):
            return told
        if name not in self._differs and not self._counter.is_enough:
            self._counter.count += 1
            self._writer = self._writer or DumpWriter(self._folder, self._config)
            self._kept.add(name)
        self._differs.setdefault(name, []).append(".".join([part, *map(str, path)]))
        if self._writer is None or name not in self._kept:
            return told
        return self._writer.tensor(file_name_of(name, part, path), array, dtype, name)
