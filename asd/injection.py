"""Faults for drills: silent data corruption of a tensor, with effect, time and place decided by a seed.

A fault is data. It can be written as text, `gradient:model.norm_out:flip=30:step=40`, and parsed. Its change is a plain
function of the array, so a fault does the same in every mode and on every machine. `asd.operators.drill.inject` puts it
into a network.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from asd.errors import ConfigError

Array = np.ndarray[Any, Any]

TARGETS = {
    "gradient": "the gradient at a checkpoint",
    "weight": "a parameter, before the step",
    "output": "the forward output of a checked layer",
    "moment": "a state of the optimizer, before the step",
    "update": "a parameter, after the optimizer has changed it",
    "sum": "the sum of a parameter's gradients over the ranks, as if one rank had sent a wrong one",
}


class Pattern(NamedTuple):
    """Pattern of corruption of an array.

    Attributes:
        meaning: Description, which ends in the pattern's number.
        operation: Operation on the values: `xor` with their bits, `multiply`, `set`, or `move`, which takes others.
        is_valid: Returns whether a number is valid for the pattern.
    """

    meaning: str
    operation: str
    is_valid: Callable[[float], bool]


_BITS = range(64)


def _is_count(amount: float) -> bool:
    return amount >= 1 and float(amount).is_integer()


_PATTERNS: Mapping[str, Pattern] = MappingProxyType(
    {
        "flip": Pattern("flips the bit of this number in one element, 0 being the lowest", "xor", _BITS.__contains__),
        "scale": Pattern("multiplies one element by this factor", "multiply", math.isfinite),
        "set": Pattern("sets one element to this value; inf and nan are valid", "set", lambda _: True),
        "stick": Pattern("sets one column, along the last axis, to this value", "set", lambda _: True),
        "noise": Pattern(
            "multiplies every element by 1 plus noise of this standard deviation", "multiply", math.isfinite
        ),
        "factor": Pattern("multiplies every element by this factor", "multiply", math.isfinite),
        "zero": Pattern("sets each so many-th element of each so many-th row to 0", "set", _is_count),
        "block": Pattern("sets a block with sides of so many elements to 0", "set", _is_count),
        "shift": Pattern("shifts one row, along the last axis, by so many elements", "move", _is_count),
    }
)
PATTERNS = {name: pattern.meaning for name, pattern in _PATTERNS.items()}
"""Descriptions of all patterns by name."""


class ElementChange(NamedTuple):
    """Change of some elements of a flat array, as data: every operator that has these can make it."""

    at: Array  # indices of the elements that change
    source: Array  # indices of the elements that their new values are computed from
    operand: Array  # of the operation: one number, or one for each element


class Change(NamedTuple):
    """Change of a tensor by a fault, for the log."""

    step: int  # training step
    where: str  # name of the tensor
    elements: int  # number of elements whose bits changed; 0 when the fault changed nothing
    at: tuple[int, ...]  # index of the first changed element
    before: float  # value of that element before
    after: float  # value of that element after


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        target: One of `TARGETS`.
        where: Regular expression for the name of the checkpoint or parameter; the first match is taken, or with a
            `chance` all of them.
        pattern: One of `PATTERNS`.
        amount: Number of the pattern: bit, factor, value, count or standard deviation.
        step: First step with the fault, from 1.
        duration: Number of steps it lasts.
        rank: Rank to change; None for every rank.
        elements: Number of elements that `flip`, `scale` and `set` change.
        seed: Decides which elements, columns and rows change, and in which calls.
        chance: Probability that a call is changed. Below 1 the device is intermittent: other elements change each time.
    """

    target: str
    where: str
    pattern: str
    amount: float
    step: int
    duration: int = 1
    rank: int | None = None
    elements: int = 1
    seed: int = 0
    chance: float = 1.0

    def __post_init__(self) -> None:
        checks = {
            "target": (self.target in TARGETS, f"it must be one of {', '.join(TARGETS)}"),
            "pattern": (self.pattern in PATTERNS, f"it must be one of {', '.join(PATTERNS)}"),
            "where": (_is_expression(self.where), "it must be a regular expression for a checkpoint or parameter name"),
            "step": (self.step >= 1, "it must be a step from 1 on"),
            "duration": (self.duration >= 1, "it must be a number of steps from 1 on"),
            "elements": (self.elements >= 1, "it must be a number from 1 on"),
            "rank": (self.rank is None or self.rank >= 0, "it must be a rank from 0 on"),
            "seed": (self.seed >= 0, "it must be a number from 0 on"),
            "chance": (0 < self.chance <= 1, "it must be a number above 0, up to 1"),
            "amount": (
                self.pattern in PATTERNS and _PATTERNS[self.pattern].is_valid(self.amount),
                "it must be a bit from 0 to 63, a count from 1 on, or a finite number",
            ),
        }
        for name, (is_valid, valid) in checks.items():
            if not is_valid:
                raise ConfigError(f"fault {name}", getattr(self, name), valid)

    @classmethod
    def parse(cls, text: str) -> Fault:
        """Parses `target:where:pattern=amount[:name=number ...]`.

        >>> Fault.parse("gradient:norm_out:flip=30:step=40").pattern
        'flip'

        Raises:
            ConfigError: It cannot be parsed.
        """
        options_of_it = ":duration= :rank= :elements= :seed= :chance="
        valid = f"it must be of the form gradient:norm_out:flip=30:step=40, with options {options_of_it}"
        numbers = {field.name for field in fields(cls)} - {"target", "where", "pattern", "amount"}
        target, *parts = text.split(":")
        options: dict[str, str] = {}
        while parts and "=" in parts[-1] and parts[-1].partition("=")[0] in {*PATTERNS, *numbers} - set(options):
            name, _, value = parts.pop().partition("=")
            options[name] = value
        patterns = [name for name in options if name in PATTERNS]
        where = ":".join(parts)  # an expression may hold colons, as in (?:a|b)
        if not where or len(patterns) != 1 or "step" not in options:
            raise ConfigError("fault", text, valid)
        try:
            given: dict[str, Any] = {
                name: float(value) if name == "chance" else int(value)
                for name, value in options.items()
                if name in numbers
            }
            amount = float(options[patterns[0]])
        except ValueError as error:
            raise ConfigError("fault", text, valid) from error
        return cls(target, where, patterns[0], amount, **given)

    def is_active(self, step: int, rank: int) -> bool:
        """Returns whether the fault is active on `rank` in `step`."""
        return self.step <= step < self.step + self.duration and self.rank in {None, rank}

    def of_call(self, call: int) -> Fault | None:
        """Returns the fault of one call of a computation; None if chance spares it.

        Args:
            call: Number of the call; the same number has the same result.

        >>> sometimes = Fault.parse("output:ffn:zero=4:step=1:duration=100:chance=0.1")
        >>> sum(sometimes.of_call(call) is not None for call in range(1000))
        99
        """
        if self.chance == 1:
            return self
        random = np.random.default_rng((self.seed, call))
        return None if random.random() >= self.chance else replace(self, seed=int(random.integers(2**31)), chance=1.0)

    @property
    def operation(self) -> str:
        """Returns the operation of its pattern."""
        return _PATTERNS[self.pattern].operation

    def plan(self, shape: tuple[int, ...], dtype: Any) -> ElementChange:
        """Returns its change of a tensor that is not empty, as data."""
        random, size, amount = np.random.default_rng(self.seed), math.prod(shape), self.amount
        chosen = random.choice(size, size=min(self.elements, size), replace=False)
        if self.pattern == "flip":
            if amount >= 8 * dtype.itemsize:
                raise ConfigError("fault flip", int(amount), f"valid for {dtype} is 0 to {8 * dtype.itemsize - 1}")
            return ElementChange(chosen, chosen, np.array([1 << int(amount)], f"u{dtype.itemsize}"))
        at = chosen if self.pattern in {"scale", "set"} else self._at(shape, random)
        values = np.full(at.size if self.operation == "set" else 1, 0 if self.pattern in {"zero", "block"} else amount)
        if self.pattern == "noise":
            values = 1 + amount * random.standard_normal(at.size)
        source = np.roll(at, int(amount)) if self.pattern == "shift" else at
        with np.errstate(over="ignore", invalid="ignore"):
            return ElementChange(at, source, values.astype(dtype))

    def _at(self, shape: tuple[int, ...], random: np.random.Generator) -> Array:
        """Returns the elements of a pattern that has places of its own; rows are along the last axis."""
        rows = np.arange(math.prod(shape)).reshape(-1, shape[-1] if shape else 1)
        if self.pattern == "stick":
            rows = rows[:, random.integers(rows.shape[1])]
        elif self.pattern == "zero":
            period = int(self.amount)
            top, left = (int(random.integers(min(period, length))) for length in rows.shape)
            rows = rows[top::period, left::period]
        elif self.pattern == "block":
            side = int(self.amount)
            top, left = (int(random.integers(max(1, length - side + 1))) for length in rows.shape)
            rows = rows[top : top + side, left : left + side]
        elif self.pattern == "shift":
            rows = rows[random.integers(rows.shape[0])]
        return rows.reshape(-1)

    def __str__(self) -> str:
        amount = repr(float(self.amount)).removesuffix(".0")
        text = f"{self.target}:{self.where}:{self.pattern}={amount}:step={self.step}:duration={self.duration}"
        rank = "" if self.rank is None else f":rank={self.rank}"
        chance = "" if self.chance == 1 else f":chance={self.chance!r}"
        return f"{text}{rank}:elements={self.elements}:seed={self.seed}{chance}"


def _is_expression(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return bool(text)
