"""Runs a check of the self-test and prints its outcome."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from asd.diagnosis.selftest import ABSENT, BEGUN, OK, WRONG, Finding, line_of

_LONGEST = 400


class Wrong(Exception):
    """Raised for a wrong result; the message has the expected and the actual value."""


class Absent(Exception):
    """Raised where the device or MindSpore lacks the tested function; the message names it."""


class Report:
    """Printer of one line per check on standard output.

    Args:
        mode: `graph` or `pynative`.
    """

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def check(self, area: str, name: str, test: Callable[..., Any], *given: Any, dtype: str = "") -> None:
        """Runs `test(*given)`, which raises `Wrong` or `Absent` or passes.

        Args:
            area: See `Finding`.
            name: See `Finding`.
            test: The check.
            *given: Its arguments.
            dtype: See `Finding`.
        """
        self._tell(area, name, BEGUN, dtype)
        state, detail = OK, ""
        try:
            test(*given)
        except Absent as missing:
            # Checks compute in float32: a function that a device lacks there is missing for the checks.
            state, detail = WRONG if dtype == "float32" else ABSENT, str(missing)
        except Wrong as wrong:
            state, detail = WRONG, str(wrong)
        except Exception as error:
            state, detail = WRONG, _first_words(error)
        self._tell(area, name, state, dtype, detail)

    def _tell(self, area: str, name: str, state: str, dtype: str, detail: str = "") -> None:
        detail = " ".join(detail.split())[:_LONGEST]
        finding = Finding(area, name, state, self.mode, dtype, detail)
        print(line_of(finding), flush=True)  # noqa: T201 - this is how a child speaks


def expect(condition: bool, sentence: str) -> None:  # noqa: FBT001
    """Raises `Wrong` unless `condition`."""
    if not condition:
        raise Wrong(sentence)


def expect_near(what: str, found: Any, expected: Any, relative: float = 0.0, absolute: float = 0.0) -> None:
    """Raises `Wrong` unless each number is near the expected one; inf equals inf and NaN equals NaN."""
    got, truth = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    expect(got.shape == truth.shape, f"{what} has the shape {list(got.shape)}, NumPy {list(truth.shape)}")
    near = np.isclose(got, truth, rtol=relative, atol=absolute, equal_nan=True)
    if not near.all():
        at = tuple(int(i) for i in np.argwhere(~near)[0])
        place = f" at {list(at)}" if at else ""
        raise Wrong(f"{what}{place} is {got[at]:.9g}, NumPy's is {truth[at]:.9g}; {int((~near).sum())} of {got.size}")


def expect_bits(what: str, found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Raises `Wrong` unless each array has the bits of the expected one."""
    expect(len(found) == len(expected), f"{what}: {len(found)} tensors, expected are {len(expected)}")
    for number, (got, truth) in enumerate(zip(found, expected, strict=True)):
        if got.tobytes() != truth.tobytes():
            far = np.abs(got.astype(np.float64) - truth.astype(np.float64)) if got.shape == truth.shape else math.nan
            raise Wrong(f"{what}: tensor {number} has other bits; the largest difference is {np.max(far):.6g}")


def try_bare(what: str, bare: Callable[..., Any], *given: Any) -> Any:
    """Returns the result of the operator itself, without our checks; without it nothing can be tested."""
    try:
        return bare(*given)
    except Exception as error:
        raise Absent(f"MindSpore does not compute {what} here: {_first_words(error)[:160]}") from error


def _first_words(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return f"{type(error).__name__}: {lines[0] if lines else 'without a message'}"
