"""Modules of `mindspore.nn` made again from what a dump tells of them.

`module_attributes` is what a dump should hold: the plain settings of a module and of the operators in it. A module made
again counts only if it has the very same, so a setting that nothing tells can't be guessed wrong.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from mindspore import mint, nn, ops

from asd.operators.checks.base import ASDBase
from asd.operators.precheck.arguments import NotCheckable, from_json
from asd.operators.private.cells import children
from asd.operators.private.class_swap import stock_class

__all__ = ["make_module", "module_attributes"]

_PLAIN = (bool, int, float, str, type(None))
# What a Cell keeps of itself, and what a training changes.
_NOT_SETTINGS = frozenset(vars(nn.Cell())) | {"training", "cls_name", "param_prefix", "instance_name"}


def module_attributes(cell: nn.Cell) -> dict[str, Any] | None:
    """The settings of a module as JSON can hold them; None for a module that is not MindSpore's own.

    Args:
        cell: Any module.
    """
    kind = stock_class(cell)  # a recorded module, or a checked one, has a class of its own
    if _class(kind.__name__) is not kind:
        return None
    return _settings(cell)


def make_module(name: str, attributes: dict[str, Any] | None, dtypes: dict[str, str]) -> Callable[..., Any]:
    """A module with the settings that `module_attributes` told.

    Args:
        name: Its class.
        attributes: Its settings.
        dtypes: The type of each parameter.

    Raises:
        NotCheckable: It can't be made, or would not be the same.
    """
    kind = _class(name)
    if kind is None:
        raise NotCheckable("it is no module of MindSpore; the operators and functions in it are checked")
    if attributes is None:
        raise NotCheckable("the dump does not tell what the module was made with; the operators in it are checked")
    signature = inspect.signature(kind).parameters
    # Some settings are kept by an operator in the module alone.
    inner = {key: value for each in attributes.values() if isinstance(each, dict) for key, value in each.items()}
    known = {**inner, **attributes}
    given = {key: _argument(name, key, known[key]) for key in signature if key in known}
    if dtypes and "dtype" in signature:
        given["dtype"] = from_json(next(iter(dtypes.values())))
    try:
        module: nn.Cell = kind(**given)
    except Exception as error:
        raise NotCheckable(f"the module can't be made with {given!r:.100}: {error!s:.100}") from None
    if _settings(module) != attributes:
        raise NotCheckable("the dump does not tell all that the module was made with; the operators in it are checked")
    return module  # type: ignore[no-any-return]


def _argument(module: str, name: str, value: Any) -> Any:
    if (module, name) == ("GELU", "approximate"):
        return value == "tanh"
    return from_json(value)


def _class(name: str) -> type[nn.Cell] | None:
    for module in (nn, mint.nn):
        found = getattr(module, name, None)
        if inspect.isclass(found) and issubclass(found, nn.Cell) and found is not nn.Cell:
            return found
    return None


def _settings(cell: nn.Cell) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in vars(cell).items():
        if name in _NOT_SETTINGS or name.startswith(("_", "asd_")):
            continue
        operator = value.op if isinstance(value, ASDBase) else value
        operator = getattr(operator, "primitive", operator)  # a recorded one stands in an envelope
        if isinstance(operator, ops.Primitive):
            found[name] = {"name": operator.name, **{key: _plain(item) for key, item in operator.init_attrs.items()}}
        elif isinstance(value, (*_PLAIN, list, tuple)):
            found[name] = _plain(value)
    for name, child in children(cell).items():
        if child is not None and not name.startswith("asd_"):
            found[name] = {"name": type(child).__name__, **_settings(child)}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, _PLAIN):
        return value
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else str(value)
