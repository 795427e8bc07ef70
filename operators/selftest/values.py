"""Inputs of a self-test, NumPy's results for them, and cells around the tested operators."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from asd.diagnosis.spread import CAP
from asd.operators.selftest.outcome import expect_bits, expect_near

DTYPES = ("float32", "float16", "bfloat16")
SMALLEST = 1e-37  # a norm below it may count as zero, as some threads of MindSpore take denormal numbers for 0
_SHAPE = (5, 827)  # no multiple of any width that a device computes at once
_BITS = {"float32": 24, "float16": 11, "bfloat16": 8}
_LARGEST = {"float32": 1e30, "float16": 6e4, "bfloat16": 1e30}  # whose squares are inf in float32
_DENORMAL = {"float32": 1e-40, "float16": 6e-8, "bfloat16": 1e-39}


def number_of_bits(dtype: str) -> int:
    """Returns how many binary digits a number of this type has."""
    return _BITS[dtype]


def rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns `array` rounded to this type; bfloat16, which NumPy lacks, as float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype != "bfloat16":
            return np.asarray(array, dtype)
        bits = np.array(array, np.float32).view(np.uint32)
    to_even = bits + 0x7FFF + (bits >> 16 & 1)
    near = np.where(np.isfinite(array), to_even, bits) & np.uint32(0xFFFF0000)
    return near.astype(np.uint32).view(np.float32).reshape(np.shape(array))


def tensor(array: np.ndarray, dtype: str) -> Tensor:
    """Returns a tensor of this type; `array` holds only numbers that the type has, see `rounded`."""
    made = Tensor(np.array(array))
    return made.astype(ms.bfloat16) if dtype == "bfloat16" else made


def read(x: Tensor) -> np.ndarray:
    """Returns the numbers of a tensor; those of bfloat16 as float32."""
    return np.array((x.astype(ms.float32) if x.dtype == ms.bfloat16 else x).asnumpy())


def cases(dtype: str) -> dict[str, np.ndarray]:
    """Tensors by what is special about them, all of one shape."""
    random = np.random.default_rng(7)
    normal = random.normal(size=_SHAPE)
    found = {
        "usual": normal,
        "zeros": np.zeros(_SHAPE),
        "minus zeros": np.full(_SHAPE, -0.0),
        "denormal": np.full(_SHAPE, _DENORMAL[dtype]),
        "tiny": normal * (1e-4 if dtype == "float16" else 1e-30),
        "huge": np.full(_SHAPE, -_LARGEST[dtype]),
        "far apart": np.where(np.arange(_SHAPE[1]) % 2, 1e-4, _LARGEST[dtype]) * np.ones(_SHAPE),
        "one large": _put(normal, 1e4),
        "inf": _put(normal, math.inf),
        "minus inf": _put(normal, -math.inf),
        "nan": _put(normal, math.nan),
        "nan first": _put(normal, math.nan, 0),
        "nan and inf": _put(_put(normal, math.nan, 5), math.inf),
        "all nan": np.full(_SHAPE, math.nan),
    }
    return {name: rounded(array, dtype) for name, array in found.items()}


def _put(array: np.ndarray, value: float, at: int = -1) -> np.ndarray:
    changed = array.copy()
    changed.flat[at] = value
    return changed


def norm_of(array: np.ndarray) -> float:
    """Returns the L2 norm that NumPy measures in float64; `inf` or `nan` where an element is."""
    return float(np.linalg.norm(array.astype(np.float64)))


class Differentiated(nn.Cell):
    """A cell and the gradients of its first output with respect to all inputs, in one graph.

    Args:
        net: Whose output is a tensor.
    """

    def __init__(self, net: nn.Cell) -> None:
        super().__init__()
        self.net = net
        self.grad = ops.GradOperation(get_all=True, sens_param=True)

    def construct(self, sens, *inputs):
        """Returns the output, and a tuple of gradients."""
        return self.net(*inputs), self.grad(self.net)(*inputs, sens)


class FirstOutput(nn.Cell):
    """The first of what an operator gives.

    Args:
        op: The operator.
        constants: Given to it after the inputs.
    """

    def __init__(self, op: Any, *constants: Any) -> None:
        super().__init__()
        self.op, self.constants = op, constants

    def construct(self, *inputs):
        """Returns a tensor."""
        outputs = self.op(*inputs, *self.constants)
        if isinstance(outputs, tuple):
            outputs = outputs[0]
        return outputs


@functools.cache
def repeats_its_bits() -> bool:
    """Returns whether this device computes products and norms with the same bits each time."""
    random = np.random.default_rng(13)
    x = Tensor(random.normal(size=(64, 64)).astype(np.float32))
    norm = nn.LayerNorm((64,))
    return len({norm(ops.matmul(x, x)).asnumpy().tobytes() for _ in range(4)}) == 1


def expect_alike(what: str, found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Raises `Wrong` unless bits are equal or, on a device that does not repeat its own, what rounding explains."""
    if repeats_its_bits():
        expect_bits(what, found, expected)
        return
    for number, (got, truth) in enumerate(zip(found, expected, strict=True)):
        bits = _BITS.get(got.dtype.name, 24)
        size = float(np.max(np.abs(truth.astype(np.float64)), initial=0.0, where=np.isfinite(truth)))
        near = max(CAP, 2.0 ** (3 - bits))
        expect_near(f"tensor {number} of {what}", got, truth, near, near * size)
