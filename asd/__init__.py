"""Detects silent data corruption while a MindSpore model trains.

A checked operator measures the gradient that passes through it, and a rule judges that number once a step. A
first-level anomaly names the device, refuses the update, and ends training or skips the step. This is the core, quick
to import and without MindSpore. `asd.operators` has everything that touches MindSpore, `asd.exporters` everything that
leaves the process.
"""

from asd import rules
from asd.config import Config
from asd.errors import (
    AnomalyDetected,
    ASDError,
    ConfigError,
    IsolationError,
    RankLostError,
    StateError,
    TrainingResultError,
    UnsupportedError,
)
from asd.event import Event
from asd.verdict import Level, Verdict

__version__ = "1.0.0"
__all__ = [
    "ASDError",
    "AnomalyDetected",
    "Config",
    "ConfigError",
    "Event",
    "IsolationError",
    "Level",
    "RankLostError",
    "StateError",
    "TrainingResultError",
    "UnsupportedError",
    "Verdict",
    "__version__",
    "rules",
]
