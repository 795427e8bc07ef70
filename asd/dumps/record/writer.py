"""One step of one rank as a dump: a folder that other tools read.

    <dump_path>/step{N}/rank{R}/dump.json, stack.json, construct.json, dump_tensor_data/*.npy

Tensors are written as they come, the three JSON files when the step ends, dump.json last. A full disk, a folder that
can't be written or a value without a form in JSON ends the recording, not the training.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from asd.dumps.formats.new_file import move_aside
from asd.dumps.formats.statistics import crc32, statistics
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.rundir.disk import write_whole

_LOG = logging.getLogger("asd")
_LONGEST_FILE_NAME = 255


class DumpWriter:
    """Writes one folder.

    Args:
        folder: Where; what an earlier run left there is moved aside.
        config: Its `task`, `level`, `md5`, `high` and `tensor_list` count.
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
        self._data: dict[str, Any] = {}
        self._stacks: dict[str, tuple[str, ...]] = {}
        self._parents: dict[str, str | None] = {}
        self.optimizer: dict[str, Any] = {}  # settings of the optimizers that ran in the step
        self.failed = False
        self._guarded(self._open)

    @property
    def _saves(self) -> bool:
        return self._config.task == "tensor" or bool(self._config.tensor_list)

    def _open(self) -> None:
        move_aside(self.folder)
        (self._tensors if self._saves else self.folder).mkdir(parents=True, exist_ok=True)

    def _head(self) -> dict[str, Any]:
        return {
            "task": self._config.task,
            "level": self._config.level,
            "framework": "mindspore",
            "tool": "mindspore-asd",
            **({"environment": self._environment} if self._environment else {}),
            **({"optimizer": self.optimizer} if self.optimizer else {}),
            "dump_data_dir": str(self._tensors.resolve()) if self._saves else None,
        }

    def value(self, name: str, part: str, path: list[int | str], value: Any) -> None:
        """Sets one value of an entry; `path` is its place in the part, and an empty one sets all of it.

        Args:
            name: Of the entry.
            part: `input_args`, `output`, ...
            path: Indices of lists and keys of objects.
            value: What JSON can hold, as `tensor` and the like return it.
        """
        self._guarded(self._place, name, part, path, value)

    def tensor(self, file_name: str, array: np.ndarray[Any, Any], dtype: str, entry: str) -> dict[str, Any]:
        """Returns the entry of a tensor in `dump.json`; writes the tensor too if it is asked for.

        Args:
            file_name: Without its ending, such as `Mint.add.0.forward.input.0`.
            array: Its elements; bfloat16 is widened to float32.
            dtype: As MindSpore names it, such as `BFloat16`.
            entry: Name of the entry it belongs to.
        """
        fields, _ = statistics(array, high=self._config.high)
        told = {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(array.shape), **fields}
        if self._config.md5:
            told["md5"] = crc32(array)
        if self._config.task == "tensor" or any(part in entry for part in self._config.tensor_list):
            name = self._guarded(_save_array, self._tensors, file_name, array)
            told |= {"data_name": name} if name else {}
        return told

    def stack(self, name: str, frames: tuple[str, ...]) -> None:
        """Adds the call stack of a forward entry, innermost frame first."""
        self._guarded(self._stacks.__setitem__, name, frames)

    def parent(self, name: str, parent: str | None) -> None:
        """Adds the module in which an entry runs; None at the top."""
        self._guarded(self._parents.__setitem__, name, parent)

    def drop(self, name: str) -> None:
        """Drops an entry that is not asked for: nothing of it is kept."""
        self._guarded(self._drop, name)

    def finish(self) -> None:
        """Ends the step and writes the files."""
        self._guarded(self._write)

    def _place(self, name: str, part: str, path: list[int | str], value: Any) -> None:
        # To the end: the order of `data` is that in which its entries were completed.
        self._data[name] = entry = self._data.pop(name, {})
        entry[part] = _placed(entry.get(part), path, copy(value))  # what is whole now may be filled up later

    def _drop(self, name: str) -> None:
        for file_name in _files_in(self._data.get(name)):
            (self._tensors / file_name).unlink(missing_ok=True)
        for about in (self._data, self._stacks, self._parents):
            about.pop(name, None)

    def _write(self) -> None:
        texts = {frames: json.dumps(frames) for frames in set(self._stacks.values())}  # many calls share one
        stacks = _object((name, texts[frames]) for name, frames in self._stacks.items())
        write_whole(self.folder / "stack.json", stacks, flush=False)
        # A dump of calls alone has no modules.
        calls_alone = self._config.level == "L1" and self._config.task != "overflow_check"
        parents = {} if calls_alone else self._parents
        lines = _object((name, json.dumps(parent)) for name, parent in parents.items())
        write_whole(self.folder / "construct.json", lines, flush=False)
        head = [(name, json.dumps(value)) for name, value in self._head().items()]
        data = _object((name, json.dumps(entry)) for name, entry in self._data.items())
        write_whole(self.folder / "dump.json", _object([*head, ("data", data)]))

    def _guarded(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Runs `act`; the first time it fails is told, and nothing is written any more."""
        with self._lock:
            if self.failed:
                return None
            try:
                return act(*arguments)
            except Exception as error:  # of whatever kind: the training goes on
                self.failed = True
                reason = getattr(error, "strerror", None) or str(error).rstrip(".")
                self._problem(f"the dump in {self.folder} ends here, the training continues: {reason}.")
                return None


def _object(members: Iterable[tuple[str, str]]) -> str:
    """Returns the text of an object, a member a line, of names and the texts of their values."""
    lines = ",\n".join(f"{json.dumps(name)}: {text}" for name, text in members)
    return f"{{\n{lines}\n}}" if lines else "{}"


def _placed(container: Any, path: list[int | str], value: Any) -> Any:
    """Returns `container` with `value` at `path`; lists are filled up with null.

    Args:
        container: The present value; None for nothing.
        path: Indices of lists and keys of objects; empty: `value` replaces all.
        value: A JSON value.
    """
    if not path:
        return value
    here, rest = path[0], path[1:]
    if isinstance(here, str):
        container = container if isinstance(container, dict) else {}
        container[here] = _placed(container.get(here), rest, value)
        return container
    container = container if isinstance(container, list) else []
    container.extend([None] * (here + 1 - len(container)))
    container[here] = _placed(container[here], rest, value)
    return container


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
    """Writes `array` to `<name>.npy` in `folder` and returns the name of the file; a name that is too long is cut."""
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
