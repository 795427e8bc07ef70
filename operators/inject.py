"""Documented import path of `FaultInjector`: see `asd.operators.drill.inject`."""

from asd.operators.drill.inject import FaultInjector, gradient_fault, numpy_operator

__all__ = ["FaultInjector", "gradient_fault", "numpy_operator"]
