"""What a step changes in Python: attributes of the user's cells, which one that is made again would change once more.

A graph runs no Python, but PyNative does: a counter, a list, a mean that a cell keeps for itself. What is found
changed after a run without a trace is put back.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import sys
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.experimental.optim.lr_scheduler import LRScheduler

from asd.operators.measure.step_tensors import tensor_like, to_host
from asd.operators.private.class_swap import stock_class

__all__ = ["PythonState", "reached_from"]

_OF_EVERY_CELL = frozenset(vars(nn.Cell())) - {"_buffers"}
_NOT_THE_USERS = sys.stdlib_module_names | {"asd", "mindspore", "numpy"}
_LARGEST = 1 << 20
"""Bytes of a tensor or an array that is kept; larger ones are masks and tables more often than not."""
_DEEPEST = 4
_MOST_ELEMENTS = 1000
"""Of a list that is searched; longer ones are data."""
_EMPTY = types.CellType()
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class PythonState:
    """The attributes of cells as they are now.

    Args:
        cells: Those of a step; only of classes that are the user's own attributes are kept.
        schedules: Of a learning rate, which a step may move on.

    Attributes:
        iterator: The name of an iterator, which nobody can put back; empty if there is none.
    """

    def __init__(self, cells: Iterable[nn.Cell], schedules: Iterable[LRScheduler] = ()) -> None:
        self._kept: list[tuple[str, Any, dict[Any, Any]]] = []
        self._contents: list[tuple[str, Any, Any]] = []
        self._seen: dict[int, Any] = {}
        self.iterator = ""
        for cell in cells:
            if _is_users(stock_class(cell)):
                self._keep_attributes(type(cell).__name__, cell, _DEEPEST)
        for schedule in schedules:
            self._keep(type(schedule).__name__, schedule, _DEEPEST)

    def _keep_attributes(self, name: str, holder: Any, depth: int) -> None:
        values = {
            key: value
            for key, value in vars(holder).items()
            if not (isinstance(holder, nn.Cell) and (key in _OF_EVERY_CELL or key.startswith("asd_")))
        }
        self._kept.append((name, holder, values))
        for key, value in values.items():
            with contextlib.suppress(Exception):  # foreign objects need not let anybody look into them
                self._keep(f"{name}.{key}", value, depth - 1)

    def _keep(self, name: str, value: Any, depth: int) -> None:
        if depth == 0 or isinstance(value, (*_PLAIN, nn.Cell, Parameter, type)) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if _is_iterator(value):
            self.iterator = self.iterator or name
        elif isinstance(value, np.random.Generator):
            self._kept.append((name, value.bit_generator, {"state": value.bit_generator.state}))
        elif isinstance(value, (Tensor, np.ndarray)):
            if value.nbytes <= _LARGEST:
                self._contents.append((name, value, _bits(value)))
        elif isinstance(value, (list, deque, dict, set, tuple)):
            self._keep_elements(name, value, depth - 1)
        elif isinstance(value, LRScheduler) or (hasattr(value, "__dict__") and _is_users(type(value))):
            self._keep_attributes(name, value, depth)

    def _keep_elements(self, name: str, value: Any, depth: int) -> None:
        if not isinstance(value, tuple):
            self._contents.append((name, value, value.copy()))
        for each in value.values() if isinstance(value, dict) else value:
            self._keep(name, each, depth)

    def put_back(self) -> str:
        """Puts back what has changed since.

        Returns:
            The name of what was changed first, or an empty text.
        """
        changed = ""
        for name, holder, values in self._kept:
            for key, value in values.items():
                if not _is_same(getattr(holder, key, self), value):
                    changed = changed or f"{name}.{key}"
                    object.__setattr__(holder, key, value)
        for name, value, before in self._contents:
            if not _is_same(_bits(value) if isinstance(value, (Tensor, np.ndarray)) else value, before):
                changed = changed or name
                _fill(value, before)
        return changed


def _is_iterator(value: Any) -> bool:
    return isinstance(value, Iterator) and not isinstance(value, (io.IOBase, *weakref.ProxyTypes))


def _is_users(kind: type) -> bool:
    return kind.__module__.partition(".")[0] not in _NOT_THE_USERS


def _is_same(one: Any, other: Any) -> bool:
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return isinstance(one, (*_PLAIN, set)) and bool(one == other)


def _bits(value: Any) -> np.ndarray:
    return to_host(value) if isinstance(value, Tensor) else value.copy()


def _fill(value: Any, before: Any) -> None:
    if isinstance(value, Tensor):
        value.copy_(tensor_like(value, before))
    elif isinstance(value, np.ndarray):
        value[...] = before
    elif isinstance(value, (list, deque)):
        value.clear()
        value.extend(before)
    else:
        value.clear()
        value.update(before)


def reached_from(run: Any) -> Iterator[Any]:
    """What a function knows by name, of its object, closure, globals and defaults.

    Yields:
        Cells, Parameters, schedules of learning rates, and iterators.
    """
    todo, seen = deque([(run, _DEEPEST)]), dict[int, Any]()
    while todo:
        value, depth = todo.popleft()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        with contextlib.suppress(Exception):  # as in `PythonState`
            if isinstance(value, (nn.Cell, Parameter, LRScheduler)) or _is_iterator(value):
                yield value
            elif depth > 0:
                todo.extend((each, depth - 1) for each in _named_in(value))


def _named_in(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple, dict)):
        return islice(value.values() if isinstance(value, dict) else value, _MOST_ELEMENTS)
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if inspect.ismethod(value):
        return value.__self__, value.__func__
    if hasattr(value, "__dict__") and not isinstance(value, type) and _is_users(type(value)):
        return *vars(value).values(), *((type(value).__call__,) if callable(value) else ())
    function = inspect.unwrap(value) if callable(value) else None
    if not inspect.isfunction(function) or str(function.__module__).partition(".")[0] in ("asd", "numpy"):
        return ()
    closure = [cell.cell_contents for cell in function.__closure__ or () if cell != _EMPTY]
    known = function.__globals__
    named = [known[name] for name in function.__code__.co_names if name in known]
    return *closure, *named, *(function.__defaults__ or ())
