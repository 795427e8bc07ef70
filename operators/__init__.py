"""Everything that touches MindSpore: check operators, taps, the guard and the monitor.

    ASDBase, LayerNormASD, RmsNormASD, GatherASD    operators that check the gradient of an input
    enable, disable                                 MindSpore's own norm operators replaced by the checking ones
    install                                         checks on a network that is already built
    guard                                           an optimizer that refuses a bad update
    StepMonitor, ASDMonitor                         callbacks of MindSpore and of mindformers
    PrecisionDebugger, DumpConfig                   dumps of modules, APIs and operators; the search for an overflow

Importing this package with `NPU_ASD_ENABLE` on calls `enable()`, as the feature-value detection document says.
"""

from __future__ import annotations

from asd.config import Config
from asd.operators.base import ASDBase
from asd.operators.debugger.dump_config import DumpConfig
from asd.operators.debugger.precision_debugger import PrecisionDebugger
from asd.operators.enable import disable, enable
from asd.operators.guard import guard
from asd.operators.install import Installation, install
from asd.operators.mindformers_monitor import ASDMonitor, register
from asd.operators.ready_made import GatherASD, LayerNormASD, RmsNormASD
from asd.operators.step_monitor import StepMonitor

__all__ = [
    "ASDBase",
    "ASDMonitor",
    "DumpConfig",
    "GatherASD",
    "Installation",
    "LayerNormASD",
    "PrecisionDebugger",
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
