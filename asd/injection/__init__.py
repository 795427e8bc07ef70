"""Faults for drills: what silent data corruption does to a tensor, when and where, decided by a seed.

`fault` says where and when, and how often by chance; `patterns` what is done to an array.
"""

from __future__ import annotations

from asd.injection.fault import TARGETS, Change, Fault
from asd.injection.patterns import PATTERNS

__all__ = ["PATTERNS", "TARGETS", "Change", "Fault"]
