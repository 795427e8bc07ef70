"""Hooks on the modules of a network and on the operators they hold."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mindspore import nn, ops

from asd.operators.debugger.hooks.session import Label, eager_session
from asd.operators.debugger.record.values import attributes_of, settings_of
from asd.operators.gate.site import is_ours
from asd.operators.private.cells import own_parameters
from asd.operators.private.class_swap import put_on
from asd.operators.sensors.base import ASDBase

_NOT_RECORDED = re.compile(
    r"^(HookBackward|InsertGradientOf|Custom|Morph|GetNext|Load|UpdateState|ScalarSummary|TensorSummary"
    r"|HistogramSummary|ImageSummary|TensorDump)$"
)
_HOOK = "asd_debugger_hook"
_CASTS = ("fp16", "fp32", "bf16")
_HOLDERS = (nn.CellList, nn.CellDict)  # they compute nothing


@dataclass(frozen=True)
class _Hook:
    """Label and attributes that a hooked module or operator is recorded with."""

    label: Label  # its name
    attributes: dict[str, Any] | None = None  # attributes of an operator; None for a module


def hook_modules(nets: Sequence[nn.Cell]) -> None:
    """Hooks `nets` and every module inside them.

    Args:
        nets: One network, which is called `model`, or several, which are called after their index as their modules are.
    """
    for path, cell in list(_modules(nets)):
        if _HOOK not in vars(cell):
            _hook_module(cell, Label(f"Cell.{path}.{type(cell).__name__}", module=True))


def hook_operators(nets: Sequence[nn.Cell]) -> None:
    """Hooks every operator that is an attribute of a module or of one of `nets`."""
    for cell in dict.fromkeys((*nets, *(cell for _, cell in _modules(nets)))):
        for name, holder, place, value in list(_operators(cell)):
            recorded = isinstance(value, ops.Primitive) and not _NOT_RECORDED.match(value.name)
            if recorded and not name.startswith("asd_"):
                text = f"Primitive.{name}.{type(value).__name__}"
                operator = _Operator(value, _Hook(Label(text, module=False), attributes_of(value)))
                # What `to_float` says: the compiler casts what goes into an operator.
                operator.add_flags(**{name: flag for name, flag in cell.get_flags().items() if name in _CASTS})
                object.__setattr__(holder, place, operator)


def _operators(cell: nn.Cell) -> Iterator[tuple[str, object, str, Any]]:
    """Yields attributes of a module: name, holder, name there, and value; for a check operator the one it checks."""
    for name, value in vars(cell).items():
        if isinstance(value, ASDBase):
            yield name, value, "op", value.op
        else:
            yield name, cell, name, value


def _modules(nets: Sequence[nn.Cell]) -> Iterator[tuple[str, nn.Cell]]:
    """Yields path and module; also the network itself as `model`, unless a module has that name."""
    for index, net in enumerate(nets):
        prefix = "" if len(nets) == 1 else f"{index}."
        cells = dict(net.cells_and_names())
        if "model" not in cells:
            yield prefix[:-1] or "model", net
        for path, cell in cells.items():
            if path and not is_ours(path) and not isinstance(cell, _HOLDERS):
                yield prefix + path, cell


def _hook_module(cell: nn.Cell, label: Label) -> None:
    base = type(cell)

    class Hooked(base):  # type: ignore[misc, valid-type]
        def __call__(self, *args, **kwargs):
            session = eager_session()
            if session is None:
                return super().__call__(*args, **kwargs)
            hook: _Hook = getattr(self, _HOOK)
            own = {name: each for name, each in own_parameters(self).items() if each is not None}
            run = super().__call__
            return session.call(hook.label, run, args, kwargs, attributes=lambda: settings_of(self), parameters=own)

    # Past Cell's own __setattr__: a registered child would be called by a SequentialCell and listed by everybody.
    object.__setattr__(cell, _HOOK, _Hook(label))
    put_on(cell, Hooked)


class _Operator(nn.Cell):
    """An operator in its place as an attribute of a module."""

    def __init__(self, primitive: ops.Primitive, hook: _Hook) -> None:
        super().__init__(auto_prefix=False)
        # Past Cell's own __setattr__, which would rename the operator.
        object.__setattr__(self, "primitive", primitive)
        object.__setattr__(self, _HOOK, hook)

    def __call__(self, *args, **kwargs):
        session = eager_session()
        if session is None:
            return self.primitive(*args, **kwargs)
        hook: _Hook = getattr(self, _HOOK)
        return session.call(hook.label, self.primitive, args, kwargs, attributes=lambda: hook.attributes)

    def construct(self, *args):
        return self.primitive(*args)

    def __getattr__(self, name):
        return getattr(object.__getattribute__(self, "primitive"), name)
