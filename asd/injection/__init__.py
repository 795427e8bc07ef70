"""Faults for drills: silent data corruption of a tensor, with effect, time and place decided by a seed.

`fault` has time, place and chance; `patterns` has the changes of an array.
"""

from asd.injection.fault import TARGETS, Change, Fault
from asd.injection.patterns import PATTERNS

__all__ = ["PATTERNS", "TARGETS", "Change", "Fault"]
