"""The stress test of one device: work whose answers are known, repeated for a time.

workloads ── what is computed, and the answers, which NumPy finds without the device
runner ── repeats it and compares
vendor ── MindSpore's own test of an Ascend device

May import: `drill`.
"""

from __future__ import annotations

from asd.operators.stress.runner import StressFinding, StressOutcome, stress, use_device

__all__ = ["StressFinding", "StressOutcome", "stress", "use_device"]
