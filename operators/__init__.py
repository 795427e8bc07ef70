"""Everything that touches MindSpore: check operators, taps, the guard and the monitor.

    ASDBase, LayerNormASD, RmsNormASD, GatherASD    operators that check the gradient of an input
    enable, disable                                 MindSpore's own norm operators replaced by the checking ones
    install                                         checks on a network that is already built
    guard                                           an optimizer that refuses a bad update
    StepMonitor, ASDMonitor                         callbacks of MindSpore and of mindformers

Importing this package with `NPU_ASD_ENABLE` on calls `enable()`, as the feature-value detection document says.
"""

from __future__ import annotations

from asd.config import Config
from asd.operators.base import ASDBase
from asd.operators.enable import disable, enable
from asd.operators.guard import guard
from asd.operators.install import Installation, install
from asd.operators.mindformers_monitor import ASDMonitor, register
from asd.operators.ready_made import GatherASD, LayerNormASD, RmsNormASD
from asd.operators.step_monitor import StepMonitor

__all__ = [
    "ASDBase",
    "ASDMonitor",
    "GatherASD",
    "Installation",
    "LayerNormASD",
    "RmsNormASD",
    "StepMonitor",
    "disable",
    "enable",
    "guard",
    "install",
]

if Config.of_process().enabled:
    enable()
register()
