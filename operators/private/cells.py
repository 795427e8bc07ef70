"""Private attributes of cells and callbacks, as in MindSpore 2.9 and 2.10."""

from collections.abc import Iterable, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, cast

import mindspore
from mindspore import Parameter, nn


def own_parameters(cell: nn.Cell) -> MutableMapping[str, Parameter | None]:
    """Returns the Parameters that are attributes of `cell`; an entry written here replaces the attribute."""
    return cast("MutableMapping[str, Parameter | None]", cell._params)


def primitives(cell: nn.Cell) -> MutableMapping[str, Any]:
    """Returns the operators that are attributes of `cell`."""
    return cast("MutableMapping[str, Any]", cell._primitives)


def checkpoint_folder(writer: Any) -> str | None:
    """Returns the folder into which a `ModelCheckpoint` writes; None before it has begun."""
    return getattr(writer, "_directory", None)


def callbacks_in(given: Any) -> Iterable[Any]:
    """Returns the callbacks in the list that MindSpore made of a user's."""
    return getattr(given, "_callbacks", None) or given or ()


def is_hooked(cell: nn.Cell) -> bool:
    """Returns whether `cell` has a hook, forward or backward."""
    names = ("forward_pre_hook", "forward_hook", "backward_pre_hook", "backward_hook")
    return any(getattr(cell, f"_{name}", None) for name in names)


def without_gradients() -> AbstractContextManager[Any]:
    """Returns a context in which PyNative records no gradients."""
    return cast("AbstractContextManager[Any]", mindspore.common._no_grad())
