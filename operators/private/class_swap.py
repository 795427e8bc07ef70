"""The one way to give a cell a class of its own: a layer on the class that it has, which can be taken off again.

Checks, the guard and the debugger each put a method around one of a cell's by a class that is derived from the cell's.
Several may do that to one cell, and leave in any order.
"""

from __future__ import annotations

from typing import Any

from mindspore import nn

from asd.operators.private.compiled_super import mend_super

__all__ = ["put_on", "stock_class", "take_off"]

_BELOW = "asd_original"
"""What a layer calls the class it was put on."""


def put_on(cell: nn.Cell, layer: type) -> type:
    """Gives `cell` the class `layer`; nothing that goes by the class' name notices.

    Args:
        cell: Any cell; what is compiled of it already does not change.
        layer: Derived from the class of `cell`, and made for this cell alone.

    Returns:
        `layer`.
    """
    mend_super()
    below = type(cell)
    # Parameter names, isinstance and searches by class name must not notice.
    layer.__name__, layer.__qualname__, layer.__module__ = below.__name__, below.__qualname__, below.__module__
    setattr(layer, _BELOW, below)
    cell.__class__ = layer
    return layer


def take_off(cell: nn.Cell, layer: type) -> None:
    """Takes off what `put_on` put there; layers that were put on before and later stay, and no layer is no error."""
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
    """The class that `cell` had before any layer."""
    kind: type[nn.Cell] = type(cell)
    while _BELOW in vars(kind):
        kind = vars(kind)[_BELOW]
    return kind
