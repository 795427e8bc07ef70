"""Single objects that a program saves by name: the level `debug`."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

from mindspore import Tensor

from asd.dumps.formats.statistics import statistics
from asd.dumps.record.crc import crc32
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.journal import placed
from asd.dumps.record.writer import save_array
from asd.errors import ConfigError
from asd.operators.debugger.record.values import encode, leaves
from asd.rundir.disk import write_whole

__all__ = ["SavedObjects"]

_LOG = logging.getLogger("asd")


class SavedObjects:
    """The file `debug.json` of one step; it is written anew at each call, so nothing is lost.

    Args:
        folder: Of the step and rank.
        config: Its `task`, `md5` and `high` count.
    """

    def __init__(self, folder: Path, config: DebuggerConfig) -> None:
        self._folder, self._config = folder, config
        self._tensors = folder / "dump_tensor_data"
        self._data: dict[str, Any] = {}
        self._counts: Counter[str] = Counter()
        self._handles: list[Any] = []
        self._failed = False

    def save(self, variable: Any, name: str, *, save_backward: bool) -> None:
        """Records one object.

        Raises:
            ConfigError: The name is empty or has a path in it.
        """
        if not isinstance(name, str) or not name or "/" in name or "\0" in name:
            raise ConfigError("name", name, "valid is a text without '/'")
        entry = f"{name}.{self._counts[name]}"
        self._counts[name] += 1
        self._record(f"{entry}.debug", variable)
        if save_backward:
            for path, leaf in leaves(variable):
                if isinstance(leaf, Tensor):
                    inner = "".join(f".{each}" for each in path)
                    self._handles.append(leaf.register_hook(lambda gradient, at=inner: self._record(
                        f"{entry}_grad{at}.debug", gradient)))  # fmt: skip

    def finish(self) -> None:
        """The step is over."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _record(self, entry: str, value: Any) -> None:
        if self._failed:
            return
        try:
            whole: Any = None
            for path, leaf in leaves(value):
                file_name = ".".join([entry, *map(str, path)])
                whole = placed(
                    whole, path, encode(leaf, lambda array, dtype, at=file_name: self._tensor(array, dtype, at))
                )
            self._data[entry] = whole
            head = {"task": self._config.task, "level": "debug", "framework": "mindspore"}
            saves = str(self._tensors.resolve()) if self._config.task == "tensor" else None
            text = json.dumps({**head, "dump_data_dir": saves, "data": self._data}, indent=1)
            write_whole(self._folder / "debug.json", text)
        except OSError as error:
            self._failed = True
            _LOG.error("debug.json in %s ends here, training goes on: %s.", self._folder, error.strerror or error)

    def _tensor(self, array: Any, dtype: str, file_name: str) -> dict[str, Any]:
        fields, _ = statistics(array, high=self._config.high)
        told = {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(array.shape), **fields}
        if self._config.md5:
            told["md5"] = crc32(array)
        if self._config.task == "tensor":
            told["data_name"] = save_array(self._tensors, file_name, array)
        return told
