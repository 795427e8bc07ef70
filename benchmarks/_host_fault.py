"""Faults made on the host: what the device's operators are compared with, and what Python changes within a step."""

from collections.abc import Callable
from typing import Any

import numpy as np

from asd.injection import Fault

Strike = Callable[[np.ndarray], np.ndarray]


def apply(fault: Fault, array: np.ndarray) -> np.ndarray:
    """A corrupted copy of `array`, of the same type and shape; the same elements change in each call.

    Raises:
        ConfigError: The type does not have this bit.
    """
    faulty = np.array(array, copy=True, order="C")
    if faulty.size == 0:
        return faulty
    at, source, operand = fault.plan(faulty.shape, faulty.dtype)
    flat = faulty.reshape(-1)
    values = flat[source]
    if fault.operation == "xor":
        values = (values.view(operand.dtype) ^ operand).view(array.dtype)
    elif fault.operation != "move":
        with np.errstate(over="ignore", invalid="ignore"):
            values = values * operand if fault.operation == "multiply" else operand
    flat[at] = values
    return faulty


def numpy_operator(strike: Strike) -> Any:
    """An operator that lets `strike` change an array within a step, in both modes; MindSpore's CPU back end has it."""
    from mindspore import ops

    def corrupt(array: np.ndarray) -> np.ndarray:
        return strike(array)

    return ops.Custom(corrupt, out_shape=lambda shape: shape, out_dtype=lambda dtype: dtype, func_type="pyfunc")


def gradient_fault(strike: Strike) -> Any:
    """An identity whose gradient `strike` changes."""
    from asd.operators.drill.strike import StruckGradient

    return StruckGradient(numpy_operator(strike))


def output_fault(strike: Strike) -> Any:
    """An identity whose result `strike` changes."""
    from asd.operators.drill.strike import StruckOutput

    return StruckOutput(numpy_operator(strike))
