"""Redirects the files that a training writes into the folder of its drill, and refuses what cannot be redirected."""

import builtins
import importlib
import io
import os
import pathlib
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import filterfalse
from pathlib import Path
from typing import Any

from asd.drill import REFUSED, TrainingPlan

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_AUDITED = {
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "sqlite3.connect"), slice(1)),
    "os.rename": slice(2),
    **dict.fromkeys(("os.link", "os.symlink"), slice(1, 2)),
}
"""Events of the interpreter that change files, and which of their arguments are the paths that are changed."""
_RELATIVE = ("os.mkdir", "os.remove", "os.rename", "os.rmdir")
"""Events whose last argument is the descriptor of the folder that a path is relative to, or -1."""
_OF_OTHERS = re.compile(
    r"__pycache__|kernel_meta\w*|rank_\d+|atc_data|atrace|(fusion_result|ge_check_op)\.json|"
    r"(plog|device)-\d+_\d+\.log|\.work-\d+|\.?drill\.(html|json)(\.\w+)?"
)
"""Files and folders that Python, MindSpore, CANN and drills write by themselves into the working folder."""
_READ = ("stat", "lstat", "statvfs", "access", "readlink", "listxattr", "getxattr", "rmdir")
_CHANGE = ("chmod", "chown", "lchown", "utime", "truncate", "setxattr")
_OWN = ("open", "mkdir", "rename", "replace", "symlink", "listdir", "scandir", "chdir", "remove", "unlink")


class _Entries(ExitStack):
    """Entries of a folder, which can be closed as those of `os.scandir`."""

    def __init__(self, entries: Iterable[Any]) -> None:
        super().__init__()
        self._rest = iter(entries)

    def __iter__(self) -> Iterator[Any]:
        return self._rest

    def __next__(self) -> Any:
        return next(self._rest)


class Overlay:
    """Layer over the file system: new files and folders are below `folder`, and are found there.

    Args:
        folder: Folder of this training.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.realpath(folder)
        self._below = os.path.join(self._folder, "writes")
        streams = ("/dev/fd", "/dev/stdout", "/dev/stderr")  # other devices are no files: see `to_write`
        self._free = (self._folder, *streams, "/proc", os.path.realpath(tempfile.gettempdir()))
        self._real = {name: getattr(os, name) for name in (*_OWN, *_READ, *_CHANGE)}
        self._open = builtins.open
        self._gone: set[str] = set()  # where older files would be that were removed here

    def begin(self) -> None:
        """Puts the layer in place, for the rest of this process and for processes that it forks."""
        builtins.open = io.open = self._open_file
        moves = (partial(self._move, self._real[name]) for name in ("rename", "replace"))
        looks = (partial(self._look, self._real[name]) for name in _READ)
        changes = (partial(self._change, self._real[name]) for name in _CHANGE)
        finds = (self._symlink, self._list, self._scan, self._enter, self._remove, self._remove)
        own = (self._open_low, self._mkdir, *moves, *finds, *looks, *changes)
        for name, function in zip((*_OWN, *_READ, *_CHANGE), own, strict=True):
            setattr(os, name, function)
        for module in (tempfile, pathlib)[: 1 + (sys.version_info < (3, 11))]:  # they have kept functions of `os`
            importlib.reload(module)
        sys.addaudithook(self._audit)

    def place(self, path: Any) -> str | None:
        """Returns the redirected path; None for descriptors, pipes, and places that are free to write."""
        if not isinstance(path, (str, bytes, os.PathLike)) or not os.fspath(path):
            return None
        whole = os.path.abspath(os.fsdecode(path))
        is_free = any(whole == each or whole.startswith(each + os.sep) for each in self._free)
        return None if is_free else self._below + whole

    def to_write(self, path: Any, *, keep: bool = False) -> Any:
        """Returns the path to write instead; `keep` copies the present content of the file there first."""
        below = self.place(path)
        if below is None or (below not in self._gone and self._exists(path) and not self._is_file(path)):
            return path  # a pipe, a device, a folder
        os.makedirs(os.path.dirname(below), exist_ok=True)
        if keep and below not in self._gone and not self._exists(below) and self._exists(path):
            shutil.copyfile(path, below)
        return below

    def _exists(self, path: Any) -> bool:
        with suppress(OSError, ValueError):
            self._real["stat"](path)
            return True
        return False

    def _is_file(self, path: Any) -> bool:
        return stat.S_ISREG(self._real["stat"](path).st_mode)

    def _found(self, path: Any) -> Any:
        below = self.place(path)
        return below if below is not None and (below in self._gone or self._exists(below)) else path

    def _open_file(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if set(mode) & set("wax+"):
            if "x" in mode and self._exists(self._found(file)):
                raise FileExistsError(file)
            return self._open(self.to_write(file, keep="w" not in mode), mode, *args, **kwargs)
        return self._open(self._found(file), mode, *args, **kwargs)

    def _open_low(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is None:
            writes = flags & _WRITES and not flags & os.O_DIRECTORY
            path = self.to_write(path, keep=not flags & os.O_TRUNC) if writes else self._found(path)
        return int(self._real["open"](path, flags, mode, dir_fd=dir_fd))

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        below = self.place(path) if dir_fd is None else None
        if below is None:
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            return
        if self._exists(self._found(path)):
            raise FileExistsError(17, "File exists", path)
        if not self._exists(self._found(os.path.dirname(os.path.abspath(os.fsdecode(path))))):
            raise FileNotFoundError(2, "No such file or directory", path)
        os.makedirs(os.path.dirname(below), exist_ok=True)
        self._real["mkdir"](below, mode)

    def _move(self, real: Callable[..., Any], source: Any, target: Any, **kwargs: Any) -> None:
        real(self.to_write(source, keep=True), self.to_write(target), **kwargs)
        self._gone.add(self.place(source) or "")

    def _remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        """Removes what is redirected; an older file is only not found any more."""
        if dir_fd is not None or (below := self.place(path)) is None:
            self._real["remove"](path, dir_fd=dir_fd)
        else:
            found = self._found(path)
            self._real["lstat" if found is path else "remove"](found)
            self._gone.add(below)

    def _symlink(self, source: Any, target: Any, *args: Any, **kwargs: Any) -> None:
        folder = os.path.dirname(os.path.abspath(os.fsdecode(target)))
        whole = os.path.abspath(os.path.join(folder, os.fsdecode(source)))
        below = self.place(whole)
        if below is not None and self._exists(whole) and (self._found(whole) is whole or not self._is_file(whole)):
            self._refuse("os.symlink", whole)  # what is written through it would be written in place
        fits = (below is None) == (self.place(target) is None) and not os.path.isabs(source)
        self._real["symlink"](source if fits else below or whole, self.to_write(target), *args, **kwargs)

    def _look(self, real: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> Any:
        return real(path if kwargs.get("dir_fd") is not None else self._found(path), *args, **kwargs)

    def _change(self, real: Callable[..., Any], path: Any, *args: Any, **kwargs: Any) -> None:
        to = path if kwargs.get("dir_fd") is not None else self.to_write(path, keep=True)
        if to is not path or self.place(path) is None:  # else an older folder, which stays as it is
            real(to, *args, **kwargs)

    def _list(self, path: Any = ".") -> list[Any]:
        return [each.name for each in self._scan(path)]

    def _scan(self, path: Any = ".") -> Any:
        below = self.place(path)
        if below is None or isinstance(path, bytes) or not (self._gone or self._exists(below)):
            return self._real["scandir"](path)
        places = [each for each in (path, below) if self._exists(each)] or [path]
        entries = (entry for each in places for entry in self._real["scandir"](each))
        return _Entries({each.name: each for each in entries if self.place(each.path) not in self._gone}.values())

    def _enter(self, path: Any) -> None:
        self._real["chdir"](path if self._exists(path) else self._found(path))

    def _audit(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            paths = args[:1] if isinstance(args[2], int) and args[2] & _WRITES else ()
        else:
            paths = args[_AUDITED.get(event, slice(0))]
        if event in _RELATIVE and isinstance(args[-1], int) and args[-1] >= 0:
            paths = tuple(os.path.join(os.readlink(f"/proc/self/fd/{args[-1]}"), os.fsdecode(each)) for each in paths)
        for path in paths:
            written = self.place(path) if path != ":memory:" else None
            if written is not None and not (event == "open" and self._exists(path) and not self._is_file(path)):
                self._refuse(event, os.path.abspath(os.fsdecode(path)))

    def _refuse(self, event: str, path: str) -> None:
        if not self._exists(path) and event in ("os.remove", "os.rename", "os.rmdir", "os.truncate"):
            return  # it fails by itself
        with self._open(os.path.join(self._folder, REFUSED), "a", encoding="utf-8") as told:
            told.write(f"{path} by {event}\n")
        raise PermissionError(1, f"a drill cannot redirect {event}: pass --allow-writes", path)


def begin(folder: str) -> None:
    """Begins to redirect what this process writes, if its plan says so."""
    if TrainingPlan.load(folder).redirects:
        Overlay(folder).begin()


def files_of(folder: Path, most: int) -> dict[str, tuple[int, int]] | None:
    """Returns size and time of change of a training's files below a folder; None for more than `most`."""
    found: dict[str, tuple[int, int]] = {}
    for place, folders, names in os.walk(folder):
        folders[:] = filterfalse(_OF_OTHERS.fullmatch, folders)
        for name in filterfalse(_OF_OTHERS.fullmatch, names):
            with suppress(OSError):
                state = os.lstat(path := os.path.join(place, name))
                found[path] = state.st_size, state.st_mtime_ns
        if len(found) > most:
            return None
    return found
