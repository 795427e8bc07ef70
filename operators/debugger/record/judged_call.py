"""Judges by inputs and outputs whether a call overflowed.

Ascend keeps overflow flags in hardware; every device has the values. `aicore` calls compute element by element,
`atomic` ones accumulate (sums, products of matrices, scatters, reductions over ranks).
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from asd.dumps.formats.slots import split_name
from asd.dumps.formats.statistics import Moments

OVERFLOW = "overflow"
ALREADY = "inputs already overflow, search earlier"
WEIGHT = "a parameter holds Inf or NaN already"
TRANSIENT = "outputs do not overflow: transient"

HALF_MARKS = frozenset({65504.0, 65472.0, 51200.0, 38400.0})
"""Values left by an overflowing float16 computation, beside inf; 65500 is 65504 or 65472 in that type."""
_LARGEST = {
    "Float16": 65504.0,
    "BFloat16": 3.3895313892515355e38,
    "Float32": 3.4028234663852886e38,
    "Float64": 1.7976931348623157e308,
}
_ACCUMULATES = re.compile(
    r"sum|mean|matmul|linear|dense|bmm|baddbmm|addmm|einsum|conv|scatter|index_add|addn|norm|cumsum|all_?reduce|prod|var"
    r"|std|dot|embedding|gather|biasadd",
    re.IGNORECASE,
)


@dataclass
class JudgedCall:
    """Values of one call, forward or backward, as far as they matter for an overflow."""

    inputs: list[str] = field(default_factory=list)  # trouble of each input, see `trouble`
    outputs: list[str] = field(default_factory=list)  # trouble of each output
    largest_input: float = 0.0  # largest magnitude of an input; inf and nan count as inf
    largest_output: float = 0.0
    # trouble of the inputs that are trained parameters and not finite; it is in `inputs` too
    weights: list[str] = field(default_factory=list)


def accumulates(name: str) -> bool:
    """Returns whether a call of this name sums products or elements, so that its overflow is an `atomic` one.

    Only the name of the API or class decides, not the modules around it.

    >>> accumulates("Functional.linear.145.backward"), accumulates("Tensor.exp.0.forward")
    (True, False)
    """
    return _ACCUMULATES.search(split_name(name)[0].rpartition(".")[2]) is not None


def trouble(moments: Moments, dtype: str) -> str:
    """Returns the trouble of a tensor: `nan`, `inf`, `extreme`, or "" for none.

    Extreme is the largest finite number of the type, or a mark that overflow leaves in float16.

    Args:
        moments: Moments of the tensor.
        dtype: Type as MindSpore names it.
    """
    if dtype not in _LARGEST:
        return ""
    if math.isnan(moments.largest) or math.isnan(moments.smallest):
        return "nan"
    magnitude = max(abs(moments.largest), abs(moments.smallest))
    if math.isinf(magnitude) or moments.non_finite:
        return "inf"
    return "extreme" if (dtype == "Float16" and magnitude in HALF_MARKS) or magnitude >= _LARGEST[dtype] else ""


def classify(call: JudgedCall) -> str:
    """Returns one of `OVERFLOW`, `WEIGHT`, `ALREADY` and `TRANSIENT`.

    An extreme value no larger than the inputs is no overflow: masks are filled with such numbers.
    """
    bad_inputs = {each for each in call.inputs if each in ("nan", "inf")}
    bad_outputs = {each for each in call.outputs if each in ("nan", "inf")}
    if "extreme" in call.outputs and call.largest_output > call.largest_input:
        bad_outputs.add("extreme")
    if bad_outputs - {"extreme"} or (bad_outputs and not bad_inputs):
        if not bad_inputs:
            return OVERFLOW
        count, of_weights = (sum(each in ("nan", "inf") for each in of) for of in (call.inputs, call.weights))
        return WEIGHT if count == of_weights else ALREADY
    return TRANSIENT


def magnitude_of(value: Any) -> float:
    """Returns the magnitude of a number that is not a tensor; 0 for anything else."""
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.number)):
        return 0.0
    try:
        magnitude = abs(float(value))
    except OverflowError:
        return math.inf
    return math.inf if math.isnan(magnitude) else magnitude
