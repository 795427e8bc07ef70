"""Documented import path of `FaultInjector`: see `asd.operators.drill.inject`."""

from asd.operators.drill.inject import FaultInjector

__all__ = ["FaultInjector"]
