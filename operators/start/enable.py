"""Replaces MindSpore's norm operators by checking ones, and adds a monitor to every training."""

from mindspore import ops
from mindspore.ops import operations

from asd.operators.private import patches
from asd.operators.private.class_swap import mend_what_lives
from asd.operators.sensors.fallback import prepare_compilations
from asd.operators.sensors.ready_made import LayerNormASD, RmsNormASD
from asd.operators.sensors.sampled.sampling import put_back_layers
from asd.operators.start import autostart

_REPLACEMENTS = {"LayerNorm": LayerNormASD, "RmsNorm": RmsNormASD}


def enable() -> None:
    """Replaces `LayerNorm` and `RmsNorm` of `mindspore.ops` by check operators, for layers built from now on.

    Every training of this process is judged from now on as well, see `asd.operators.start.autostart`, unless it has a
    `StepMonitor` already. `NPU_ASD_ENABLE` decides on the reaction; with 0 nothing happens. Importing `asd.operators`
    calls this when `NPU_ASD_ENABLE` is on. A second call changes nothing.
    """
    for module in (ops, operations):
        for name, replacement in _REPLACEMENTS.items():
            patches.replace(module, name, replacement)
    autostart.start()


def disable() -> None:
    """Restores everything that is replaced in MindSpore, and ends the sampling of results.

    Layers built in the meantime keep their checks.

    The compiler of graphs and its parser stay patched as long as a network with checks or a guard exists.
    """
    autostart.stop()
    put_back_layers()
    patches.put_back()
    prepare_compilations()  # of what lives
    mend_what_lives()
