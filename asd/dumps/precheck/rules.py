"""Rules for a right output.

    seed      cosine > 0.99 and largest absolute error < 0.0001, both strictly
    rounding  the same, but an error that rounding explains passes
    strict    every element within some units in the last place of its own type, see `_STRICT_ULPS`

    cosine         = (1e-8 + N·B) / (1e-8 + |N| |B|)
    relative error = |N - B| / |B|; 1e-8 in place of a B that is 0

N is the tested value, B the float64 reference. The absolute limit ignores scale: a right float32 result of a large
magnitude breaks it, such as scores with a mask of -1e9 added. So a result that passes the strict rule is no error. That
rule measures each element in units in the last place (ULP) of the reference's value. It takes the noise of rounded
inputs there, or on average in the tensor, if that is more: where large numbers cancel no type can do better.
"""

from dataclasses import dataclass

import numpy as np

from asd.dumps.formats.statistics import Array, without_bad

_COSINE_LIMIT, ABS_LIMIT = 0.99, 0.0001
_STRICT_ULPS = {"Float64": 64.0, "Float32": 64.0, "Float16": 16.0, "BFloat16": 16.0}
"""Largest distance in ULP, by type of the output. Integers and bools must be equal."""

_EPSILON = 1e-8
_EPSILONS = {"Float64": 2.0**-52, "Float32": 2.0**-23, "Float16": 2.0**-10, "BFloat16": 2.0**-7}
_LARGEST = {
    "Float64": float(np.finfo(np.float64).max),
    "Float32": float(np.finfo(np.float32).max),
    "Float16": 65504.0,
    "BFloat16": float.fromhex("0x1.fep127"),
}
_SMALLEST = {"Float64": 2.0**-1022, "Float32": 2.0**-126, "Float16": 2.0**-14, "BFloat16": 2.0**-126}


@dataclass(frozen=True)
class Judgement:
    """Result of comparing one output."""

    cosine: float  # cosine similarity
    max_abs: float  # largest absolute error; inf where Inf or NaN are at different places
    max_relative: float  # largest relative error
    passed: bool  # whether the rule holds
    message: str = ""  # reason of a failure, or a difference that rounding explains; empty otherwise


def epsilon_of(dtype: str) -> float:
    """Returns the distance from 1 to the next number of a floating-point type; 0 for other types."""
    return _EPSILONS.get(dtype, 0.0)


def judge(
    tested: Array,
    reference: Array,
    dtype: str,
    *,
    rule: str = "rounding",
    abs_limit: float = ABS_LIMIT,
    noise: Array | None = None,
) -> Judgement:
    """Compares an output with its reference.

    Args:
        tested: Any shape.
        reference: Reference of the same shape.
        dtype: The type of the output, as dumps name it.
        rule: `rounding`, `seed` or `strict`.
        abs_limit: Limit of the rules `rounding` and `seed`.
        noise: Change of each element by rounding of the inputs; None for no change. The rule `seed` ignores it.
    """
    if tested.shape != reference.shape:
        shapes = f"the shape is {list(tested.shape)}, and that of the reference {list(reference.shape)}"
        return Judgement(float("nan"), float("inf"), float("inf"), passed=False, message=shapes)
    n, b = _wide(tested), _wide(reference)
    n, b, clashes = without_bad(n, b, _LARGEST.get(dtype))
    with np.errstate(all="ignore"):
        dot, norms = float(np.dot(n, b)), float(np.sqrt(np.dot(n, n)) * np.sqrt(np.dot(b, b)))
        cosine = (_EPSILON + dot) / (_EPSILON + norms) if np.isfinite(norms) else float("nan")
        distance, size = np.abs(n - b), np.abs(b)
        max_abs = float(distance.max(initial=0.0))
        max_relative = float((distance / np.where(size == 0, _EPSILON, size)).max(initial=0.0))
    if clashes:
        message = f"{clashes} elements are Inf or NaN on one side only"
        return Judgement(cosine, float("inf"), float("inf"), passed=False, message=message)
    strict = _strict_problem(distance, size, dtype, None if noise is None else _wide(noise)) if rule != "seed" else ""
    if rule == "strict":
        return Judgement(cosine, max_abs, max_relative, not strict, strict)
    problem = _seed_problem(cosine, max_abs, abs_limit)
    explained = rule == "rounding" and not strict and cosine > _COSINE_LIMIT and dtype in _STRICT_ULPS
    told = f"{problem}, which rounding to {dtype} explains" if problem and explained else problem
    return Judgement(cosine, max_abs, max_relative, not problem or explained, told)


def _seed_problem(cosine: float, max_abs: float, abs_limit: float) -> str:
    problems = [] if cosine > _COSINE_LIMIT else [f"the cosine is not above {_COSINE_LIMIT}"]
    problems += [] if max_abs < abs_limit else [f"the largest absolute error is not below {abs_limit}"]
    return "; ".join(problems)


def _strict_problem(distance: Array, size: Array, dtype: str, noise: Array | None) -> str:
    if not distance.size:
        return ""
    if dtype not in _STRICT_ULPS:
        wrong = int(np.count_nonzero(distance))
        return f"{wrong} of {distance.size} elements differ" if wrong else ""
    # The distance of two neighbours in the type, as at the power of two below the value.
    with np.errstate(all="ignore"):
        unit = np.exp2(np.floor(np.log2(np.maximum(size, _SMALLEST[dtype])))) * _EPSILONS[dtype]
        if noise is not None:
            unit = np.maximum(unit, np.where(np.isfinite(noise), noise, 0.0))
        ulps = distance / unit
    worst = int(ulps.argmax())
    limit = _STRICT_ULPS[dtype]
    if ulps[worst] <= limit:
        return ""
    wrong = int(np.count_nonzero(ulps > limit))
    return f"element {worst} is {ulps[worst]:.4g} units in the last place off, {limit:g} are allowed ({wrong} such)"


def _wide(array: Array) -> Array:
    if array.dtype.kind == "c":
        array = np.ascontiguousarray(array).view(array.real.dtype)
    # float64 does not hold every int64.
    wide: Array = array.reshape(-1).astype(np.longdouble if array.dtype.kind in "iu" else np.float64)
    return wide
