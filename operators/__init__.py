"""Everything that touches MindSpore: check operators, taps, the guard and the monitor.

    ASDBase, LayerNormASD, RmsNormASD, GatherASD    operators that check the gradient of an input
    enable, disable                                 MindSpore's own norm operators replaced by the checking ones
    install                                         checks on a network that is already built
    tell_shard                                      the shard of this rank, in a training with its own process groups
    guard                                           an optimizer that refuses a bad update
    StepMonitor, ASDMonitor                         callbacks of MindSpore and of mindformers
    PrecisionDebugger, DumpConfig                   dumps of modules, APIs and operators; the search for an overflow
    NPURunConfig, dump_config_of                    the same search as scripts of the TensorFlow adapter ask for it
    GradientMonitor, GradComparator                 gradients step by step; where those of two runs part

Importing this package with `NPU_ASD_ENABLE` on calls `enable()`, as the document of feature value detection requires.
"""

from asd.config import Config
from asd.drill import drilled
from asd.dumps.compare.similarity import GradComparator
from asd.operators.debugger.dump_config import DumpConfig, NPURunConfig, dump_config_of
from asd.operators.debugger.gradient_monitor import GradientMonitor
from asd.operators.debugger.precision_debugger import PrecisionDebugger
from asd.operators.gate.guard import guard
from asd.operators.monitor.step_monitor import StepMonitor
from asd.operators.ranks.shards import tell_shard
from asd.operators.sensors.base import ASDBase
from asd.operators.sensors.install import Installation, install
from asd.operators.sensors.ready_made import GatherASD, LayerNormASD, RmsNormASD
from asd.operators.start.enable import disable, enable
from asd.operators.start.mindformers_monitor import ASDMonitor, register

__all__ = [
    "ASDBase",
    "ASDMonitor",
    "DumpConfig",
    "GatherASD",
    "GradComparator",
    "GradientMonitor",
    "Installation",
    "LayerNormASD",
    "NPURunConfig",
    "PrecisionDebugger",
    "RmsNormASD",
    "StepMonitor",
    "disable",
    "dump_config_of",
    "enable",
    "guard",
    "install",
    "tell_shard",
]

if Config.of_process().enabled:
    enable()
register()
if folder := drilled():
    from asd.operators.drill.child import begin

    begin(folder)
