"""What cells and callbacks hold under names that MindSpore keeps to itself, as in 2.9 and 2.10."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import Any

from mindspore import Parameter, nn

__all__ = ["callbacks_in", "checkpoint_folder", "own_parameters", "primitives"]


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
