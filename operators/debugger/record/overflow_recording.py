"""The overflow check: every call is judged by its values, and only those that overflowed are kept."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Parameter

from asd.dumps.formats.statistics import crc32, statistics
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.overflow_record import OverflowRecord
from asd.dumps.record.writer import DumpWriter
from asd.errors import OverflowDetected
from asd.operators.debugger.record.judged_call import (
    ALREADY,
    OVERFLOW,
    WEIGHT,
    JudgedCall,
    accumulates,
    classify,
    magnitude_of,
    trouble,
)
from asd.operators.debugger.record.values import Path as Place
from asd.operators.debugger.record.values import dtype_name, encode, to_array

_LOG = logging.getLogger("asd")
_INPUTS = ("input_args", "input_kwargs", "input", "parameters")


class OverflowCounter:
    """Counter of the overflows of a training, which it ends after enough of them."""

    def __init__(self, config: DebuggerConfig) -> None:
        self.count = 0  # overflows so far
        self._config = config
        self._pending: OverflowDetected | None = None

    @property
    def is_enough(self) -> bool:
        """Returns whether training is about to end: later overflows are ignored."""
        return self._pending is not None

    def add(self, name: str, kind: str, path: Path | None) -> None:
        """Counts and logs an overflow."""
        self.count += 1
        where = f"'{path}'" if path is not None else "nowhere, the record can't be written"
        said = "[overflow %d times]: module name :'%s' is overflow and dump file is saved in %s. (%s)"
        _LOG.warning(said, self.count, name, where, kind)
        if self._config.overflow_nums != -1 and self.count >= self._config.overflow_nums:
            self._pending = OverflowDetected(name, self.count, str(path) if path is not None else "")

    def end_training(self) -> None:
        """Ends the training after enough overflows; raises OverflowDetected if there were enough."""
        pending, self._pending = self._pending, None
        if pending is not None:
            raise pending


class OverflowRecording:
    """Judge of the entries of one step.

    Args:
        config: Its `check_mode` and `overflow_nums` count.
        folder: Folder of the step and rank; created at the first overflow.
        counter: Counter of the training.
        sees_all: Whether every call is recorded. Otherwise the call that overflowed may be unrecorded, and the first
            call with its results as inputs counts instead.
        weights: Weights of the network; one that is not finite from the start is reported where it is used first.
    """

    def __init__(
        self,
        config: DebuggerConfig,
        folder: Path,
        counter: OverflowCounter,
        *,
        sees_all: bool,
        weights: Iterable[Parameter] = (),
    ) -> None:
        self._config, self._folder, self._counter, self._sees_all = config, folder, counter, sees_all
        self._calls: dict[str, JudgedCall] = {}
        self._data: dict[str, dict[str, list[tuple[Place, Any]]]] = {}
        self._opened: dict[str, tuple[str | None, tuple[str, ...], dict[str, Any] | None]] = {}
        self._writer: DumpWriter | None = None
        self._bad_weights: set[tuple[tuple[int, ...], str]] = set()
        for weight in weights:
            array = to_array(weight)
            if array.size and trouble(statistics(array)[1], dtype_name(weight)) in ("nan", "inf"):
                self._bad_weights.add((array.shape, crc32(array)))

    def open(self, name: str, parent: str | None, frames: tuple[str, ...], attributes: dict[str, Any] | None) -> None:
        """Notes parent, stack and attributes of a call."""
        self._opened[name] = (parent, frames, attributes)
        self._calls.setdefault(name, JudgedCall())

    def put(self, name: str, part: str, path: Place, value: Any) -> None:
        """Judges one value of a call."""
        call = self._calls.setdefault(name, JudgedCall())
        if part in _INPUTS:
            magnitude = magnitude_of(value)
            call.largest_input = max(call.largest_input, magnitude)
            if magnitude == np.inf:  # a mask is filled with -inf on purpose
                call.inputs.append("inf")
        told = encode(value, lambda array, dtype: self._judge(call, part, array, dtype))
        self._data.setdefault(name, {}).setdefault(part, []).append((path, told))

    def put_array(self, name: str, part: str, path: Place, array: np.ndarray, dtype: str) -> None:
        """Judges one tensor of a call."""
        told = self._judge(self._calls.setdefault(name, JudgedCall()), part, array, dtype)
        self._data.setdefault(name, {}).setdefault(part, []).append((path, told))

    def close(self, name: str) -> None:
        """Judges a finished call; keeps it only if it overflowed."""
        call = self._calls.pop(name, None)
        parts = self._data.pop(name, {})
        opened = self._opened.pop(name, (None, (), None))
        if call is None or self._counter.is_enough:
            return
        kind = classify(call)
        if kind != WEIGHT and not self._is_checked(name):
            return
        unseen = not self._sees_all and not self._counter.count
        if kind in (OVERFLOW, WEIGHT) or (kind == ALREADY and (unseen or "nan" in call.outputs)):
            self._counter.add(name, kind, self._keep(name, kind, parts, opened))

    def drop(self, name: str) -> None:
        """Forgets a call."""
        for known in (self._calls, self._data, self._opened):
            known.pop(name, None)

    def finish(self) -> None:
        """Judges all open calls and ends the dump."""
        for name in list(self._calls):
            self.close(name)
        if self._writer is not None:
            self._writer.finish()

    def _is_checked(self, name: str) -> bool:
        mode = self._config.check_mode
        return mode == "all" or accumulates(name) == (mode == "atomic")

    def _judge(self, call: JudgedCall, part: str, array: np.ndarray, dtype: str) -> dict[str, Any]:
        fields, moments = statistics(array, high=self._config.high)
        found = trouble(moments, dtype)
        largest = np.inf if found in ("nan", "inf") else max(abs(moments.largest), abs(moments.smallest))
        if part in _INPUTS:
            call.inputs.append(found)
            call.largest_input = max(call.largest_input, largest)
            if found in ("nan", "inf") and (array.shape, crc32(np.ascontiguousarray(array))) in self._bad_weights:
                call.weights.append(found)
        else:
            call.outputs.append(found)
            call.largest_output = max(call.largest_output, largest)
        return {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(array.shape), **fields}

    def _keep(self, name: str, kind: str, parts: dict[str, list[tuple[Place, Any]]], opened: Any) -> Path | None:
        if self._writer is None:
            self._writer = DumpWriter(self._folder, self._config)
        writer = self._writer
        parent, frames, attributes = opened
        writer.parent(name, parent)
        if frames:
            writer.stack(name, frames)
        for part, values in parts.items():
            for path, value in values:
                writer.value(name, part, path, value)
        writer.value(name, "overflow", [], kind)
        if attributes is not None:
            writer.value(name, "attributes", [], attributes)
        data = {part: [value for _, value in values] for part, values in parts.items()}
        try:
            return OverflowRecord(self._folder).write(self._counter.count + 1, name, data)
        except OSError as error:
            _LOG.error("the overflow record can't be written: %s.", error.strerror or error)
            return None
