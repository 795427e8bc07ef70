"""Functions under `ms.jit` inside a step that is recorded in PyNative: the hooks step aside for them.

Calls of optimizers are noted in the same place: what both need of MindSpore is put back together.
"""

from collections.abc import Callable
from typing import Any

from mindspore import nn
from mindspore.experimental import optim

from asd.operators.debugger.hooks.apis import ApiHooks
from asd.operators.debugger.hooks.session import eager_session
from asd.operators.private.compiler import executors
from asd.operators.private.patches import put_back, wrap

_GROUP = "debugger"


class CompiledFunctions:
    """Stands around MindSpore's compiler between `begin` and `end`.

    Args:
        hooks: What the compiler must not see; None where no function is hooked.
        say: Called with the name of each function that the network runs compiled.
        note: Called with each optimizer that Python calls.
    """

    def __init__(self, hooks: ApiHooks | None, say: Callable[[str], None], note: Callable[[nn.Cell], None]) -> None:
        self._hooks, self._say, self._note = hooks, say, note

    def begin(self) -> None:
        """Wraps MindSpore's functions that compile and run jitted functions, and that compile cells."""
        for owner, name in zip(executors(), ("__call__", "compile"), strict=True):
            wrap(owner, name, self._around, _GROUP)
        for kind in (nn.Optimizer, optim.Optimizer):
            wrap(kind, "__call__", self._around_optimizer, _GROUP)

    def end(self) -> None:
        """Leaves both as they were."""
        put_back(_GROUP)

    def _around(self, original: Callable[..., Any], executor: Any, *args: Any, **kwargs: Any) -> Any:
        function = getattr(executor, "fn", None)
        # MindSpore's own are those of optimizers, which are no part of the network.
        if eager_session() is not None and not getattr(function, "__module__", "mindspore").startswith("mindspore"):
            self._say(getattr(function, "__qualname__", repr(function)))
        if self._hooks is None:
            return original(executor, *args, **kwargs)
        with self._hooks.aside():
            return original(executor, *args, **kwargs)

    def _around_optimizer(self, original: Callable[..., Any], optimizer: nn.Cell, *args: Any, **kwargs: Any) -> Any:
        self._note(optimizer)
        return original(optimizer, *args, **kwargs)
