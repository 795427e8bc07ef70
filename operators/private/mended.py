"""Patches MindSpore for cells with checks: `super()` in compiled code, and the files that it writes and reads."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mindspore import Parameter, nn
from mindspore.train import serialization

from asd.operators.private import patches

_SWITCH = "enable_check"  # of each operator and each cell that checks: whether it does
_LOADED = "asd_loaded"
FILE = "asd_file"  # of each Parameter that came from a checkpoint file: which
_MODULES = ("mindspore.graph._parse.parser", "mindspore._extends.parse.parser")  # it moved in 2.9


def mend_super() -> None:
    """Patches the parser: `super()` finds the class in which a method was written."""
    parser = next((sys.modules[name].Parser for name in _MODULES if hasattr(sys.modules.get(name), "Parser")), None)
    if parser is not None and hasattr(parser, "analyze_super"):
        patches.wrap(parser, "analyze_super", _as_python_does, "super")


def mend_files() -> None:
    """Patches MindSpore's files: exported networks have no checks, and loaded Parameters are marked."""
    arounds: dict[str, Any] = {"_export": _without_checks, "_update_param": _marked, "_load_into_param_dict": _named}
    for name, around in arounds.items():
        if hasattr(serialization, name):
            patches.wrap(serialization, name, around, "files")
    if hasattr(nn.Cell, "_load_from_state_dict"):
        patches.wrap(nn.Cell, "_load_from_state_dict", _loading, "files")


def take_loaded(parameters: Iterable[Parameter]) -> bool:
    """Returns whether any of `parameters` was loaded since the last call."""
    return [vars(each).pop(_LOADED, False) for each in parameters].count(True) > 0


def _named(read: Any, file: Any, found: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    done = read(file, found, *args, **kwargs)
    for each in found.values():
        if isinstance(each, Parameter):
            setattr(each, FILE, Path(str(file)).absolute())
    return done


def _marked(update: Any, parameter: Parameter, loaded: Parameter, *args: Any, **kwargs: Any) -> None:
    update(parameter, loaded, *args, **kwargs)
    setattr(parameter, _LOADED, True)
    setattr(parameter, FILE, getattr(loaded, FILE, None))


def _loading(load: Any, cell: nn.Cell, state_dict: Mapping[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
    load(cell, state_dict, prefix, *args, **kwargs)
    for name, parameter in cell.parameters_and_names(expand=False):
        if prefix + name in state_dict:
            setattr(parameter, _LOADED, True)


def _without_checks(export: Any, net: Any, *args: Any, **kwargs: Any) -> Any:
    cells = [cell for _, cell in net.cells_and_names()] if isinstance(net, nn.Cell) else []
    held = [each for cell in cells for each in (cell, *vars(cell).values()) if hasattr(type(each), "__ms_class__")]
    checks = [each for each in (*cells, *held) if getattr(each, _SWITCH, None) is True]
    for check in checks:
        setattr(check, _SWITCH, False)
    try:
        return export(net, *args, **kwargs)
    finally:
        for check in checks:
            setattr(check, _SWITCH, True)


def _as_python_does(analyze: Any, self: Any, class_type_node: Any, subclass_instance: Any) -> Any:
    # Python keeps the class for every method that has a `super` in it.
    function: Any = getattr(self, "fn", None)
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    if "__class__" not in names:
        return analyze(self, class_type_node, subclass_instance)
    owner = function.__closure__[names.index("__class__")].cell_contents
    if class_type_node is None:
        return super(owner, subclass_instance)
    name = getattr(class_type_node, "id", getattr(class_type_node, "attr", None))
    classes = type(subclass_instance).__mro__
    above = classes[classes.index(owner) :] if owner in classes else classes
    named = next((each for each in above if each.__name__ == name), None)
    return super(named, subclass_instance) if named else analyze(self, class_type_node, subclass_instance)
