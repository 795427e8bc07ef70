"""What cells and callbacks hold under names that MindSpore keeps to itself, as in 2.9 and 2.10."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from contextlib import AbstractContextManager
from typing import Any

import mindspore
from mindspore import Parameter, nn


def own_parameters(cell: nn.Cell) -> MutableMapping[str, Parameter | None]:
    """The Parameters that are attributes of `cell`; what is written here is another attribute."""
    found: MutableMapping[str, Parameter | None] = cell._params
    return found


def primitives(cell: nn.Cell) -> MutableMapping[str, Any]:
    """The operators that are attributes of `cell`."""
    found: MutableMapping[str, Any] = cell._primitives
    return found


def checkpoint_folder(writer: Any) -> str | None:
    """Where a `ModelCheckpoint` writes, once it has begun."""
    return getattr(writer, "_directory", None)


def callbacks_in(given: Any) -> Iterable[Any]:
    """The callbacks of a list that MindSpore made of those a user gave."""
    return getattr(given, "_callbacks", None) or given or ()


def is_hooked(cell: nn.Cell) -> bool:
    """Whether anybody is called when `cell` is."""
    names = ("forward_pre_hook", "forward_hook", "backward_pre_hook", "backward_hook")
    return any(getattr(cell, f"_{name}", None) for name in names)


def can_do_without_gradients() -> bool:
    """Whether `without_gradients` does anything in this version of MindSpore."""
    return hasattr(mindspore.common, "_no_grad")


def without_gradients() -> AbstractContextManager[Any]:
    """In PyNative nothing that is computed inside has gradients."""
    made: AbstractContextManager[Any] = mindspore.common._no_grad()
    return made
