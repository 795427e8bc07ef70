"""Gives a cell its own class: a layer over its present class, which can be removed later."""

import functools
import os
import weakref
from collections.abc import Callable
from typing import Any, cast

from mindspore import nn

from asd.operators.private.mended import mend_files, mend_super

_BELOW = "asd_original"  # attribute of a layer: the class that it was put on
COMPILES_ITSELF = "__wrapped_by_jit__"  # MindSpore's own mark on a function under `jit`
_layered: weakref.WeakSet[nn.Cell] = weakref.WeakSet()


def put_on(cell: nn.Cell, layer: type) -> type:
    """Gives `cell` the class `layer`, which keeps the name of the present class.

    Args:
        cell: Any cell; graphs that were compiled from it already do not change.
        layer: A subclass of the class of `cell`, made for this cell alone.

    Returns:
        `layer`.
    """
    mend_super()
    mend_files()
    below: Any = type(cell)
    # Parameter names, isinstance and searches by class name must not notice.
    layer.__name__, layer.__qualname__, layer.__module__ = below.__name__, below.__qualname__, below.__module__
    setattr(layer, _BELOW, below)
    setattr(layer, "__repr__", _as_before)  # noqa: B010 - as below
    construct = vars(layer).get("construct")
    if construct is not None and hasattr(below.construct, COMPILES_ITSELF):
        setattr(layer, "construct", _compiled_below(layer, construct))  # noqa: B010 - mypy knows methods as fixed
    cell.__class__ = layer
    _layered.add(cell)
    return layer


def _as_before(cell: nn.Cell) -> str:
    """Returns the text of a cell without the cells that check it."""
    held, stock = dict(cell._cells), cast("Any", stock_class(cell))
    for name in [each for each in held if each.startswith("asd_")]:
        del cell._cells[name]
    try:
        return str(stock.__repr__(cell))
    finally:
        cell._cells.update(held)


def mend_what_lives() -> None:
    """Patches MindSpore's parser again, if a cell with a layer still exists."""
    if any(_BELOW in vars(type(cell)) for cell in _layered):
        mend_super()


def _compiled_below(layer: Any, construct: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that Python calls for a layer's `construct`; the compiler reads `construct` itself."""

    @functools.wraps(construct)
    def compiled(self: Any, *args: Any, **kwargs: Any) -> Any:
        if os.getenv("MS_JIT") == "0":  # noqa: TID251 - MindSpore reads its own switch at each call: nothing is compiled
            return construct(self, *args, **kwargs)
        return super(layer, self).construct(*args, **kwargs)

    setattr(compiled, COMPILES_ITSELF, True)  # for a layer on this one
    return compiled


def take_off(cell: nn.Cell, layer: type) -> None:
    """Removes a layer that `put_on` added; other layers stay, and a missing layer is no error."""
    layers = [each for each in type(cell).__mro__ if _BELOW in vars(each)]
    if layer not in layers:
        return
    below: Any = vars(layer)[_BELOW]
    place = layers.index(layer)
    if place == 0:
        cell.__class__ = below
    else:
        above = layers[place - 1]
        above.__bases__ = (below,)
        setattr(above, _BELOW, below)


def stock_class(cell: nn.Cell) -> type[nn.Cell]:
    """Returns the class that `cell` had before any layer."""
    kind: type[nn.Cell] = type(cell)
    while _BELOW in vars(kind):
        kind = vars(kind)[_BELOW]
    return kind
