"""Detects silent data corruption while a MindSpore model trains.

A checked operator measures the gradient that passes through it, a rule judges that number once a step, and a
first-level anomaly names the device, keeps the update away from the weights and ends training or skips the step. Here
is the core, quick to import and without MindSpore; `asd.operators` holds everything that touches MindSpore, and
`asd.exporters` everything that leaves the process.
"""

from __future__ import annotations

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


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Reading the metadata takes longer than the rest of the import, and few ask for it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("mindspore-asd")
    except PackageNotFoundError:
        return "0.0.0+unknown"
