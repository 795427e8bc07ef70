"""The stress test of one device: work whose answers are known, repeated for a time.

workloads ── what is computed, and the answers, which NumPy finds without the device
runner ── repeats it and compares
kept_call ── the call of an operator that a training kept, because its result was wrong
recheck ── how often a device computes that otherwise
vendor ── MindSpore's own test of an Ascend device

May import: `drill`, `precheck`.
"""

from __future__ import annotations

from asd.operators.stress.kept_call import KeptCall, kept_calls
from asd.operators.stress.recheck import Recheck, first_difference, recheck
from asd.operators.stress.runner import StressFinding, StressOutcome, stress, use_device

__all__ = [
    "KeptCall",
    "Recheck",
    "StressFinding",
    "StressOutcome",
    "first_difference",
    "kept_calls",
    "recheck",
    "stress",
    "use_device",
]
