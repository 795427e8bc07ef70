"""`GradientMonitor`: what the gradients of each parameter are like, step by step."""

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import context, nn
from mindspore.communication import GlobalComm, get_rank

from asd.dumps.formats.new_file import check_writable, move_aside
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.gradient_table import write_step
from asd.errors import ConfigError
from asd.operators.debugger.record.values import to_array
from asd.operators.gate import slots
from asd.operators.gate.guard import is_guarded
from asd.operators.private.boundary import wait_for_pynative
from asd.operators.private.class_swap import put_on

_LOG = logging.getLogger("asd")
_MONITORED = "asd_gradients_are_monitored"


class GradientMonitor:
    """Records the gradients that Python calls an optimizer with; a step that is compiled as a whole has none.

    A step is one call of the optimizer; an update that the guard refuses is none. A failure to write ends the
    recording, never the training. What an earlier run left in the folder is moved aside.

    Args:
        config: A `config.json` with the task `grad_probe`, the object it holds, or a `DebuggerConfig`.

    Raises:
        ConfigError: A setting is wrong.

    Example:
        >>> GradientMonitor("config.json").monitor(optimizer)  # doctest: +SKIP
    """

    def __init__(self, config: str | Path | dict[str, Any] | DebuggerConfig) -> None:
        if isinstance(config, DebuggerConfig):
            self.config = config
        else:
            self.config = DebuggerConfig.of(config) if isinstance(config, dict) else DebuggerConfig.read(config)
        if self.config.task != "grad_probe":
            raise ConfigError("task", self.config.task, "it must be grad_probe")
        self._folder: Path | None = None
        self._names: list[str] = []
        self._step = 0
        self._failed = False

    def monitor(self, optimizer: nn.Cell) -> None:
        """Begins to record.

        Args:
            optimizer: One of `mindspore.nn` or of the like: called with a tuple of gradients, one for each of its
                `parameters`.

        Raises:
            ConfigError: It is none, is recorded already, or is guarded already.
        """
        parameters = getattr(optimizer, "parameters", None)
        if not isinstance(optimizer, nn.Cell) or parameters is None:
            raise ConfigError("optimizer", type(optimizer).__name__, "pass an optimizer with a list of parameters")
        if getattr(optimizer, _MONITORED, False) or self._folder is not None:
            raise ConfigError("optimizer", type(optimizer).__name__, "one monitor records one optimizer, once")
        if is_guarded(optimizer):
            raise ConfigError("optimizer", type(optimizer).__name__, "monitor() has to come before guard()")
        if context.get_context("mode") == context.GRAPH_MODE:
            _LOG.warning("graph mode: a step is recorded only if Python calls the optimizer with its gradients.")
        self._names = [parameter.name for parameter in parameters]
        unknown = [name for name in self.config.param_list if name not in self._names]
        if unknown and len(unknown) == len(self.config.param_list):
            raise ConfigError("param_list", unknown, f"pass parameters of the optimizer: {self._names!r:.500}")
        if unknown:
            _LOG.warning("names in param_list are not parameters of the optimizer: %s.", ", ".join(unknown))
        check_writable(self.config.dump_path)
        rank = int(get_rank()) if GlobalComm.INITED else 0
        self._folder = self.config.dump_path / f"rank{rank}"
        if not self.config.wants(rank, "rank"):
            return
        self._guarded(move_aside, self._folder)
        _attach(optimizer, functools.partial(self._guarded, self._copies), self._take)

    def _copies(self, gradients: Any) -> dict[str, np.ndarray]:
        """Returns copies by name, as the update may change a gradient in place; none if the step is not recorded."""
        chosen = self.config.param_list or self._names
        named = zip(self._names, gradients, strict=True) if self.config.wants(self._step, "step") else ()
        return {name: np.array(to_array(each)) for name, each in named if name in chosen and each is not None}

    def _take(self, copies: dict[str, np.ndarray] | None) -> None:
        step, self._step = self._step, self._step + 1
        if copies:
            self._guarded(write_step, self._folder, step, copies, self.config)

    def _guarded(self, act: Any, *arguments: Any) -> Any:
        try:
            return None if self._failed else act(*arguments)
        except Exception as error:  # of whatever kind: the training goes on
            self._failed = True
            reason = getattr(error, "strerror", None) or str(error)
            _LOG.error("the record of gradients in %s ends here, the training continues: %s.", self._folder, reason)
            return None


def _attach(optimizer: nn.Cell, copy: Callable[..., Any], take: Callable[..., None]) -> None:
    base = type(optimizer)

    class Monitored(base):  # type: ignore[valid-type, misc]
        def __call__(self, gradients, *args, **kwargs):
            before, copies = _refused(), copy(gradients)
            result = super().__call__(gradients, *args, **kwargs)
            if _refused() == before:
                take(copies)
            return result

    # Past Cell's own __setattr__, which is for Parameters and cells.
    object.__setattr__(optimizer, _MONITORED, True)
    put_on(optimizer, Monitored)


def _refused() -> int:
    """Returns the updates that guards have refused so far; waits for what decides that."""
    wait_for_pynative()
    return slots.table().refused()
