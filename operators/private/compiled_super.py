"""What `super()` means in a method that MindSpore compiles.

MindSpore's parser takes it for the class above that of the instance, whatever class the method was written in. A cell
that was given a class of its own, as checks and debugger give it, would so call the method it is in for ever: when it
was given two such classes, and when its own method has a `super()`. Here the parser gets Python's meaning of it.
"""

from __future__ import annotations

import sys
from typing import Any

from asd.operators.private import patches

__all__ = ["mend_super"]

_MODULES = ("mindspore.graph._parse.parser", "mindspore._extends.parse.parser")  # it moved in 2.9


def mend_super() -> None:
    """From now on the parser knows the class a method was written in."""
    parser = next((sys.modules[name].Parser for name in _MODULES if hasattr(sys.modules.get(name), "Parser")), None)
    if parser is not None and hasattr(parser, "analyze_super"):
        patches.wrap(parser, "analyze_super", _as_python_does, "super")


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
