"""One step of one rank as a dump: a folder that other tools read.

    <dump_path>/step{N}/rank{R}/dump.json, stack.json, construct.json, dump_tensor_data/*.npy

While the step runs everything goes to a journal (see `journal.py`), so a killed run leaves a readable dump. A full disk
or a folder that can't be written ends the recording, not the training.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from asd.dumps.formats.journal_file import JOURNAL, Gathered
from asd.dumps.formats.statistics import crc32, statistics
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.journal import finish, write_files
from asd.dumps.record.slices import cut
from asd.errors import StateError
from asd.rundir.disk import lock

__all__ = ["DumpWriter"]

_LOG = logging.getLogger("asd")
_LONGEST_FILE_NAME = 255


class DumpWriter:
    """Writes one folder.

    Args:
        folder: Where; what an earlier run left there is moved aside.
        config: Its `task`, `level`, `md5`, `high`, `slices` and `tensor_list` count.
        environment: Version and device that it is computed with: sound runs of one are equal bit for bit.
        problem: Called once with a sentence when nothing more can be written.
    """

    def __init__(
        self,
        folder: Path,
        config: DebuggerConfig,
        environment: str = "",
        *,
        problem: Callable[[str], None] = _LOG.error,
    ) -> None:
        self.folder = folder
        self._tensors = folder / "dump_tensor_data"
        self._config, self._environment = config, environment
        self._problem = problem
        self._lock = threading.Lock()  # MindSpore's backward pass has a thread of its own
        self._stacks: dict[tuple[str, ...], int] = {}
        self._file: Any = None
        self._gathered = Gathered()
        self.failed = False
        self._guarded(self._open)

    def _open(self) -> None:
        if any((self.folder / name).exists() for name in ("dump.json", JOURNAL)):
            _move_aside(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        saves = self._config.task == "tensor" or bool(self._config.tensor_list)
        if saves:
            self._tensors.mkdir(exist_ok=True)
        self._file = (self.folder / JOURNAL).open("ab", buffering=0)
        with contextlib.suppress(OSError):  # a file system without locks
            lock(self._file.fileno())  # so that no other process takes it for one that a killed run left
        self._append(
            {
                "header": {
                    "task": self._config.task,
                    "level": self._config.level,
                    "framework": "mindspore",
                    "tool": "mindspore-asd",
                    **({"slice": [asdict(each) for each in self._config.slices]} if self._config.slices else {}),
                    **({"environment": self._environment} if self._environment else {}),
                    "dump_data_dir": str(self._tensors.resolve()) if saves else None,
                }
            }
        )

    def value(self, name: str, part: str, path: list[int | str], value: Any) -> None:
        """One value of an entry; `path` is its place in the part, and an empty one sets all of it.

        Args:
            name: Of the entry.
            part: `input_args`, `output`, ...
            path: Indices of lists and keys of objects.
            value: What JSON can hold, as `tensor` and the like return it.
        """
        self._guarded(self._append, {"name": name, "part": part, "path": path, "value": value})

    def tensor(self, file_name: str, array: np.ndarray[Any, Any], dtype: str, entry: str) -> dict[str, Any]:
        """What `dump.json` says of a tensor; writes the tensor too if it is asked for.

        Args:
            file_name: Without its ending, such as `Mint.add.0.forward.input.0`.
            array: Its elements; of bfloat16 widened to float32.
            dtype: As MindSpore names it, such as `BFloat16`.
            entry: Name of the entry it belongs to.
        """
        array = cut(array, self._config.slices)
        fields, _ = statistics(array, high=self._config.high)
        told = {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(array.shape), **fields}
        if self._config.md5:
            told["md5"] = crc32(array)
        if self._config.task == "tensor" or any(part in entry for part in self._config.tensor_list):
            name = self._guarded(_save_array, self._tensors, file_name, array)
            told |= {"data_name": name} if name else {}
        return told

    def stack(self, name: str, frames: tuple[str, ...]) -> None:
        """The call stack of a forward entry, innermost frame first."""
        self._guarded(self._append_stack, name, frames)

    def parent(self, name: str, parent: str | None) -> None:
        """The module in which an entry runs; None at the top."""
        self._guarded(self._append, {"name": name, "parent": parent})

    def drop(self, name: str) -> None:
        """An entry does not belong to what is asked for: nothing of it is kept."""
        self._guarded(self._drop, name)

    def finish(self) -> None:
        """The step is over: the files are written, the journal is gone."""
        if self._file is not None:
            self._guarded(self._close)

    def _close(self) -> None:
        try:
            write_files(self._gathered, self.folder)
        finally:
            self._file.close()  # not before: it holds the lock
            self._file = None

    def _drop(self, name: str) -> None:
        for file_name in _files_in(self._gathered.data.get(name)):
            (self._tensors / file_name).unlink(missing_ok=True)
        self._append({"dropped": name})

    def _append_stack(self, name: str, frames: tuple[str, ...]) -> None:
        if frames not in self._stacks:
            self._stacks[frames] = len(self._stacks)
            self._append({"frames": list(frames), "number": self._stacks[frames]})
        self._append({"name": name, "stack": self._stacks[frames]})

    def _append(self, line: dict[str, Any]) -> None:
        if self._file is None:
            return
        text = json.dumps(line).encode() + b"\n"
        if self._file.write(text) < len(text):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._gathered.take(line)

    def _guarded(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Runs `act`; the first time it fails is told, and nothing is written any more."""
        with self._lock:
            if self.failed:
                return None
            try:
                return act(*arguments)
            except (OSError, StateError) as error:
                self.failed = True
                reason = getattr(error, "strerror", None) or str(error).rstrip(".")
                self._problem(f"the dump in {self.folder} ends here, training goes on: {reason}.")
                return None


def _files_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("data_name"), str):
            yield value["data_name"]
        else:
            yield from _files_in(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from _files_in(item)


def _save_array(folder: Path, name: str, array: np.ndarray[Any, Any]) -> str:
    """Writes `array` to `<name>.npy` in `folder` and returns the name of the file; a name that is too long is cut.

    Raises:
        OSError: It can't be written; nothing is left of it.
    """
    file_name = f"{name}.npy".replace("/", "_")
    if len(file_name.encode()) > _LONGEST_FILE_NAME:
        file_name = f"{name[:60]}.{crc32(np.frombuffer(name.encode(), np.uint8))}.npy".replace("/", "_")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name
    try:
        np.save(path, array, allow_pickle=False)
    except OSError:
        path.unlink(missing_ok=True)  # half a tensor is none
        raise
    return file_name


def _move_aside(folder: Path) -> None:
    """Renames the folder of an earlier run, whose journal is finished first, to `<name>.earlier<k>`."""
    if (folder / JOURNAL).exists():
        finish(folder)
    number = 1
    while (aside := folder.with_name(f"{folder.name}.earlier{number}")).exists():
        number += 1
    folder.rename(aside)
    _LOG.warning("the dump of an earlier run in %s is now in %s.", folder, aside)
