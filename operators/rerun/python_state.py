"""What a step keeps in Python: attributes of the user's cells, which a step that is made again would change once more.

PyNative runs Python, and a graph may: a counter, a list, a mean that a cell keeps for itself. What is found changed
after a run without a trace is put back. What can't be put back is named before.
"""

from __future__ import annotations

import contextlib
import random
from array import array
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.experimental.optim.lr_scheduler import LRScheduler

from asd.operators.measure.step_tensors import tensor_like, to_host
from asd.operators.private.class_swap import stock_class
from asd.operators.rerun.held import is_iterator, is_users

__all__ = ["PythonState"]

_OF_EVERY_CELL = frozenset(vars(nn.Cell())) - {"_buffers"}
_LARGEST = 1 << 26
"""Bytes of a tensor or an array that is kept."""
_DEEPEST = 8
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_STREAMS = {np.random.RandomState: ("get_state", "set_state"), random.Random: ("getstate", "setstate")}
_NOTHING = object()


class PythonState:
    """The attributes of cells as they are now.

    Args:
        cells: Those of a step; only of classes that are the user's own attributes are kept.
        schedules: Of a learning rate, which a step may move on.

    Attributes:
        opaque: The name of what nobody can put back; empty if there is nothing of the kind.
    """

    def __init__(self, cells: Iterable[nn.Cell], schedules: Iterable[LRScheduler] = ()) -> None:
        self._attributes: list[tuple[str, Any, dict[str, Any]]] = []
        self._contents: list[tuple[str, Any, Any]] = []
        self._seen: dict[int, Any] = {}
        self.opaque = ""
        for cell in cells:
            name = type(cell).__name__
            if any(_is_users_hook(hook) for hook in _hooks_of(cell)):
                self.opaque = self.opaque or f"hooks of {name}"
            if is_users(stock_class(cell)):
                self._keep_attributes(name, cell, _DEEPEST)
                self._keep_class(stock_class(cell))
        for schedule in schedules:
            self._keep(type(schedule).__name__, schedule, _DEEPEST)

    def _keep_class(self, kind: type) -> None:
        if id(kind) not in self._seen:
            self._seen[id(kind)] = kind
            values = {key: value for key, value in vars(kind).items() if isinstance(value, (*_PLAIN, list, dict, set))}
            values = {key: value for key, value in values.items() if not key.startswith("__")}
            self._attributes.append((kind.__name__, kind, values))
            for key, value in values.items():
                self._keep(f"{kind.__name__}.{key}", value, _DEEPEST - 1)

    def _keep_attributes(self, name: str, holder: Any, depth: int) -> None:
        values = _attributes_of(holder)
        self._attributes.append((name, holder, values))
        for key, value in values.items():
            with contextlib.suppress(Exception):  # foreign objects need not let anybody look into them
                self._keep(f"{name}.{key}", value, depth - 1)

    def _keep(self, name: str, value: Any, depth: int) -> None:
        if depth == 0 or isinstance(value, (*_PLAIN, nn.Cell, Parameter, type)) or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if is_iterator(value) or getattr(value, "nbytes", 0) > _LARGEST:
            self.opaque = self.opaque or name
        elif isinstance(value, tuple) or (before := _content_of(value)) is _NOTHING:
            self._keep_inside(name, value, depth)
        else:
            self._contents.append((name, value, before))
            if isinstance(value, (list, deque, dict)):
                self._keep_inside(name, tuple(before.values() if isinstance(before, dict) else before), depth)

    def _keep_inside(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, tuple):
            for each in value:
                self._keep(name, each, depth - 1)
        elif isinstance(value, LRScheduler) or (not callable(value) and is_users(type(value))):
            self._keep_attributes(name, value, depth)

    def put_back(self) -> str:
        """Puts back what has changed since.

        Returns:
            The name of what was changed first, or an empty text.
        """
        changed = ""
        for name, holder, values in self._attributes:
            now = values if isinstance(holder, type) else _attributes_of(holder)
            for key in dict.fromkeys((*values, *now)):
                value = values.get(key, _NOTHING)
                if not _is_same(getattr(holder, key, _NOTHING), value):
                    changed = changed or f"{name}.{key}"
                    _set(holder, key, value)
        for name, value, before in self._contents:
            if not _is_same(_content_of(value), before):
                changed = changed or name
                _fill(value, before)
        return changed


def _attributes_of(holder: Any) -> dict[str, Any]:
    """By name, of the instance; of a cell what a cell of MindSpore does not have."""
    of_kinds = [getattr(kind, "__slots__", ()) for kind in type(holder).__mro__]
    named = [name for names in of_kinds for name in ((names,) if isinstance(names, str) else names)]
    slots = [name for name in named if hasattr(holder, name)]
    values = {name: getattr(holder, name) for name in slots if not name.startswith("__")}
    values |= getattr(holder, "__dict__", {})
    if isinstance(holder, nn.Cell):
        return {key: each for key, each in values.items() if not (key in _OF_EVERY_CELL or key.startswith("asd_"))}
    return values


def _hooks_of(cell: nn.Cell) -> list[Any]:
    held = [value for key, value in vars(cell).items() if key.endswith(("_hook", "_hook_with_kwargs"))]
    return [hook for hooks in held if isinstance(hooks, dict) for hook in hooks.values()]


def _is_users_hook(hook: Any) -> bool:
    module = str(getattr(hook, "__module__", "")).partition(".")[0]
    return module not in ("asd", "mindspore") and not isinstance(getattr(hook, "__self__", None), nn.Cell)


def _content_of(value: Any) -> Any:
    """A copy of what may change inside; `_NOTHING` where that is not known."""
    kinds = {list: list, deque: list, dict: dict, set: set, bytearray: bytes, array: bytes}
    for kind, as_kind in kinds.items():
        if isinstance(value, kind):
            return as_kind(value)
    if isinstance(value, Tensor):
        return to_host(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    for stream, (read, _) in _STREAMS.items():
        if isinstance(value, stream):
            return getattr(value, read)()
    return _NOTHING


def _is_same(one: Any, other: Any) -> bool:
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return isinstance(one, (*_PLAIN, set)) and bool(one == other)


def _set(holder: Any, key: str, value: Any) -> None:
    if value is _NOTHING:
        object.__delattr__(holder, key)
    elif isinstance(holder, type):
        setattr(holder, key, value)
    else:
        object.__setattr__(holder, key, value)


def _fill(value: Any, before: Any) -> None:
    if isinstance(value, Tensor):
        value.copy_(tensor_like(value, before))
    elif isinstance(value, np.ndarray):
        value[...] = before
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = before
    elif isinstance(value, (bytearray, array)):
        memoryview(value).cast("B")[:] = before
    elif isinstance(value, (list, deque, dict, set)):
        value.clear()
        (value.extend if isinstance(value, (list, deque)) else value.update)(before)
    else:
        for stream, (_, write) in _STREAMS.items():
            if isinstance(value, stream):
                getattr(value, write)(before)
