"""Puts the checking norm operators in the place of MindSpore's own, and a monitor beside every training."""

from __future__ import annotations

from types import TracebackType

from mindspore import ops
from mindspore.ops import operations

from asd.operators.checks.ready_made import LayerNormASD, RmsNormASD
from asd.operators.private import patches
from asd.operators.private.class_swap import mend_what_lives
from asd.operators.sampled.sampling import put_back_layers
from asd.operators.start import autostart

_REPLACEMENTS = {"LayerNorm": LayerNormASD, "RmsNorm": RmsNormASD}


class Enabled:
    """What `enable` returns: a context manager that undoes it on leaving."""

    def __enter__(self) -> Enabled:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        disable()


def enable() -> Enabled:
    """Makes `LayerNorm` and `RmsNorm` of `mindspore.ops` the checking operators for every layer built from now on.

    Every training of this process is judged from now on as well, see `asd.operators.start.autostart`, unless it has a
    `StepMonitor` already; `NPU_ASD_ENABLE` says what happens then, and with 0 nothing does. Importing `asd.operators`
    does all this when `NPU_ASD_ENABLE` is on. Calling it twice changes nothing more.
    """
    for module in (ops, operations):
        for name, replacement in _REPLACEMENTS.items():
            patches.replace(module, name, replacement)
    autostart.start()
    return Enabled()


def disable() -> None:
    """Puts back all that is replaced in MindSpore, and ends the sampling of results.

    Layers built in between keep their checks.

    As long as a network with checks or a guard lives, the parser of compiled graphs still reads it as Python does.
    """
    autostart.stop()
    put_back_layers()
    patches.put_back()
    mend_what_lives()
