"""`GradientMonitor`: what the gradients of each parameter are like, step by step, in graph mode and PyNative.

An optimizer is given two faces, as the taps have. PyNative hands its gradients over as arrays; a compiled graph, as
most optimizers make one of themselves in PyNative too, hands them to Python through custom operators, which the update
waits for. Nothing of the update changes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.communication import GlobalComm, get_rank
from mindspore.ops import functional as F  # noqa: N812

from asd.dumps.formats.new_file import check_writable
from asd.dumps.gradients.options import GradientOptions
from asd.dumps.gradients.summary import write_step
from asd.errors import ConfigError
from asd.operators.gate.guard import is_guarded
from asd.operators.private.class_swap import put_on

__all__ = ["GradientMonitor"]

_LOG = logging.getLogger("asd")


class GradientMonitor:
    """Records the gradients that an optimizer is called with.

    A step is one call of the optimizer; an update that the guard refuses is none. A failure to write ends the
    recording, never the training. What an earlier run left in the folder is moved aside.

    Args:
        config: A `config.json` with the task `grad_probe`, the object it holds, or a `GradientOptions`.

    Raises:
        ConfigError: A setting is wrong.

    Example:
        >>> GradientMonitor("config.json").monitor(optimizer)  # doctest: +SKIP
    """

    def __init__(self, config: str | Path | dict[str, Any] | GradientOptions) -> None:
        if isinstance(config, GradientOptions):
            self.options = config
        elif isinstance(config, dict):
            self.options = GradientOptions.of(config)
        else:
            self.options = GradientOptions.read(config)
        self._folder: Path | None = None
        self._names: list[str] = []
        self._step = 0
        self._failed = False

    def monitor(self, optimizer: nn.Cell) -> None:
        """Begins to record; to be called before the first step, for a compiled graph does not change.

        Args:
            optimizer: One of `mindspore.nn` or of the like: called with a tuple of gradients, one for each of its
                `parameters`.

        Raises:
            ConfigError: It is none, is recorded already, or is guarded already.
        """
        parameters = getattr(optimizer, "parameters", None)
        if not isinstance(optimizer, nn.Cell) or parameters is None:
            raise ConfigError("optimizer", type(optimizer).__name__, "valid is an optimizer with a list of parameters")
        if getattr(optimizer, "asd_tap_gradients", None) is not None or self._folder is not None:
            raise ConfigError("optimizer", type(optimizer).__name__, "one monitor records one optimizer, once")
        if is_guarded(optimizer):
            # Else an update that is refused would count as a step.
            raise ConfigError("optimizer", type(optimizer).__name__, "monitor() has to come before guard()")
        self._names = [parameter.name for parameter in parameters]
        unknown = [name for name in self.options.param_list if name not in self._names]
        if unknown and len(unknown) == len(self.options.param_list):
            raise ConfigError("param_list", unknown, f"valid are parameters of the optimizer: {self._names!r:.500}")
        if unknown:
            _LOG.warning("param_list names what is no parameter of the optimizer: %s.", ", ".join(unknown))
        check_writable(self.options.dump_path)
        rank = int(get_rank()) if GlobalComm.INITED else 0
        self._folder = self.options.dump_path / f"rank{rank}"
        if not self.options.wants(rank, "rank"):
            return
        self._guarded(_move_aside, self._folder)
        _attach(optimizer, _Probe(self._take, len(self._names)))

    def _take(self, gradients: tuple[np.ndarray, ...]) -> None:
        """The gradients of one step."""
        step, self._step = self._step, self._step + 1
        if self._failed or not self.options.wants(step, "step"):
            return
        chosen = self.options.param_list or self._names
        named = {name: each for name, each in zip(self._names, gradients, strict=True) if name in chosen}
        self._guarded(write_step, self._folder, step, named, self.options)

    def _guarded(self, act: Any, *arguments: Any) -> None:
        try:
            act(*arguments)
        except Exception as error:  # of whatever kind: the training goes on
            self._failed = True
            reason = getattr(error, "strerror", None) or str(error)
            _LOG.error("the record of gradients in %s ends here, training goes on: %s.", self._folder, reason)


def _attach(optimizer: nn.Cell, probe: _Probe) -> None:
    base = type(optimizer)

    class Monitored(base):  # type: ignore[valid-type, misc]
        def construct(self, gradients, *args, **kwargs):
            seen = self.asd_tap_gradients(gradients)
            return super().construct(F.depend(gradients, seen), *args, **kwargs)

    # Past Cell's own __setattr__: a child would change what others list.
    object.__setattr__(optimizer, "asd_tap_gradients", probe)
    put_on(optimizer, Monitored)


class _Probe(nn.Cell):
    """Hands a tuple of gradients to Python.

    Args:
        take: Gets them as arrays.
        count: How many they are.
    """

    def __init__(self, take: Callable[[tuple[np.ndarray, ...]], None], count: int) -> None:
        super().__init__(auto_prefix=False)
        object.__setattr__(self, "take", take)
        object.__setattr__(self, "arrived", {})
        object.__setattr__(self, "lock", threading.Lock())
        object.__setattr__(self, "count", count)
        self.deliver = tuple(self._operator(index) for index in range(count))

    def __call__(self, gradients):
        """For PyNative, where the optimizer does not compile itself."""
        self.take(tuple(_array(gradient) for gradient in gradients))
        return gradients[0]

    def construct(self, gradients):
        """For the compiler."""
        seen = ()
        for i in range(len(self.deliver)):
            gradient = gradients[i]
            if F.dtype(gradient) == ms.bfloat16:  # NumPy has none
                gradient = F.cast(gradient, ms.float32)
            seen = (*seen, self.deliver[i](gradient))  # type: ignore[assignment]
        return seen

    def _operator(self, index: int) -> ops.Custom:
        # One for each gradient: such an operator takes no tuple.
        def deliver(gradient):
            self._arrive(index, np.array(gradient))  # a copy: the graph uses the memory again
            return np.zeros(1, np.float32)

        return ops.Custom(deliver, out_shape=lambda _: (1,), out_dtype=lambda _: ms.float32, func_type="pyfunc")

    def _arrive(self, index: int, gradient: np.ndarray) -> None:
        with self.lock:  # a compiled graph calls from several threads, in no order
            self.arrived[index] = gradient
            if len(self.arrived) == self.count:
                self.take(tuple(self.arrived[place] for place in range(self.count)))
                self.arrived.clear()


def _array(gradient: Tensor) -> np.ndarray:
    array: np.ndarray = (gradient.astype(ms.float32) if gradient.dtype == ms.bfloat16 else gradient).asnumpy()
    return array


def _move_aside(folder: Path) -> None:
    """Renames what an earlier run left to `<name>.earlier<k>`."""
    if not folder.exists() or not any(folder.iterdir()):
        return
    number = 1
    while (aside := folder.with_name(f"{folder.name}.earlier{number}")).exists():
        number += 1
    folder.rename(aside)
    _LOG.warning("the gradients of an earlier run in %s are now in %s.", folder, aside)
