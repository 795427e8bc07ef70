"""Faults for drills: silent data corruption of a tensor, with effect, time and place decided by a seed.

A fault is data. It can be written as text, `gradient:model.norm_out:flip=30:step=40`, and parsed. Its change is a plain
function of the array, so a fault does the same in every mode and on every machine. `asd.operators.drill.inject` puts it
into a network.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from asd.errors import ConfigError
from asd.injection.patterns import PATTERNS, SHAPES, ElementChange, amount_is_valid

TARGETS = {
    "gradient": "the gradient at a checkpoint",
    "weight": "a parameter, before the step",
    "output": "the forward output of a checked layer",
    "moment": "a state of the optimizer, before the step",
    "update": "a parameter, after the optimizer has changed it",
}


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
                self.pattern in PATTERNS and amount_is_valid(self.pattern, self.amount),
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

    def is_active(self, step: int, rank: int = 0) -> bool:
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
        if random.random() >= self.chance:
            return None
        return replace(self, seed=int(random.integers(2**31)), chance=1.0)

    def apply(self, array: np.ndarray[Any, Any], step: int) -> np.ndarray[Any, Any]:
        """Returns a corrupted copy of `array`, of the same type and shape.

        Args:
            array: float16, float32 or float64, any shape.
            step: The training step; the same elements change in every step.

        Raises:
            ConfigError: The type does not have this bit.
        """
        del step  # a stuck datapath hits the same place again and again
        faulty = np.array(array, copy=True, order="C")
        if faulty.size == 0:
            return faulty
        with np.errstate(over="ignore", invalid="ignore"):
            SHAPES[self.pattern].spoil(faulty, self.plan(faulty.shape, faulty.dtype))
        return faulty

    @property
    def operation(self) -> str:
        """Returns the operation of its pattern."""
        return SHAPES[self.pattern].operation

    def plan(self, shape: tuple[int, ...], dtype: Any) -> ElementChange:
        """Returns its change of a tensor that is not empty, as data."""
        random, size = np.random.default_rng(self.seed), math.prod(shape)
        chosen = random.choice(size, size=min(self.elements, size), replace=False)
        with np.errstate(over="ignore", invalid="ignore"):
            return SHAPES[self.pattern].plan(shape, dtype, self.amount, chosen, random)

    def changes(self, before: np.ndarray[Any, Any], after: np.ndarray[Any, Any], step: int, where: str) -> Change:
        """Returns the change by `apply`, compared bit by bit."""
        size = before.dtype.itemsize
        differs = (
            np.ascontiguousarray(before).view(np.uint8).reshape(-1, size)
            != np.ascontiguousarray(after).view(np.uint8).reshape(-1, size)
        ).any(axis=1)
        hit = np.flatnonzero(differs)
        if hit.size == 0:
            return Change(step, where, 0, (), math.nan, math.nan)
        first = tuple(int(i) for i in np.unravel_index(hit[0], before.shape))
        return Change(step, where, int(hit.size), first, float(before[first]), float(after[first]))

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
