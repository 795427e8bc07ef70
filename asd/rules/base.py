"""Interface of all rules, and the checks of arguments and of saved states."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from math import inf, isfinite, nextafter, sqrt
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Literal

from asd.errors import ConfigError, StateError
from asd.verdict import Verdict

UPPER: Final = (1_000_000, 10_000)
"""The published thresholds of a value, first and second level."""
SIGMA: Final = (100_000, 5_000)
"""The published thresholds of its jump."""

Feature = Literal["l2", "max", "max_square", "score"]
_SMALLEST_SQUARE = 1e-290
"""Below it squares lose their digits; no float32 has such a square."""
_LARGEST_ROOT_OF_ZERO = 1.5e-162


class Rule(ABC):
    """Judge of the feature values of one checkpoint, one value per step, with a few numbers of memory.

    A rule sees Python floats, never a tensor. Equal rules with equal values give equal verdicts, and a rule restored
    from `state()` continues exactly as if it had never stopped.

    Attributes:
        name: Name of the rule in `ASD_RULE`.
        takes: Settings that are arguments of the rule: `upper`, `sigma`, and `learn_errors`, whether a first-level
            value became part of the training.
        feature: Number of the gradient g that the rule judges: `l2` is sqrt(sum(g*g)), `max` is max(abs(g)) and
            `max_square` is max(g*g); `score` is the score of a repeated computation. All are 0 or more.
        broken: Second-level limit that the last value with a second-level anomaly broke; `inf` before the first.
    """

    name: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ()
    feature: ClassVar[Feature]
    broken: float = inf

    @abstractmethod
    def update(self, value: float) -> Verdict:
        """Judges the next value, then may learn from it.

        Args:
            value: Feature value of this step, without loss scale. Anything from 0 to infinity, or NaN.

        Returns:
            The verdict. Its limit is the result of `limit()` before this call.
        """

    @abstractmethod
    def limit(self) -> float:
        """Returns the largest next value that is not a first-level anomaly; `inf` without a limit.

        For finite values above 0, `update` returns `Level.ERROR` exactly when the value is above this limit, so a
        device that knows the limit can decide alone. `Combined` documents an exception.
        """

    def second_limit(self) -> float:
        """Returns the largest next value that needs no confirmation re-run; `limit()` for most rules."""
        return self.limit()

    def least(self) -> float:
        """Returns the smallest next value that is not suspicious; 0 for most rules."""
        return 0.0

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Returns the rule's memory for JSON: floats, counts and objects of them. NaN and infinities may occur."""

    @abstractmethod
    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from a saved state.

        Args:
            state: Result of `state()` of the same rule.

        Raises:
            StateError: A key is missing, unknown, or has a value that the rule cannot have saved. The rule is then
                unchanged.
        """


def check_number(name: str, value: object, low: float, valid: str) -> float:
    """Returns an argument as a float, or raises ConfigError unless it is a finite number of at least `low`."""
    number = as_float(value)
    if number is None or not low <= number < inf:
        raise ConfigError(name, value, valid)
    return number


def check_pair(name: str, pair: object) -> tuple[float, float]:
    """Returns a pair of thresholds as floats, or raises ConfigError.

    Both numbers must be at least 3 and the first, which belongs to the more serious level, greater than the second.
    """
    if isinstance(pair, tuple | list) and len(pair) == 2:
        first, second = map(as_float, pair)
        if first is not None and second is not None and 3 <= second < first < inf:
            return first, second
    raise ConfigError(name, pair, "two numbers of at least 3, the first greater than the second")


def check_state(rule: Rule, state: object) -> dict[str, float]:
    """Returns a copy of a saved state whose keys and types are those of `rule.state()`, or raises StateError."""
    what, template = f"rule {rule.name}", rule.state()
    values: dict[str, float] = {}
    for key, value in saved_keys(what, state, template).items():
        number = saved_count(what, key, value) if isinstance(template[key], int) else as_float(value)
        if number is None:
            raise bad_state(rule, key, value, "a number")
        values[key] = number
    return values


def bad_state(rule: Rule, key: str, value: object, valid: str) -> StateError:
    """Returns the error for one number of the saved state of a rule."""
    return wrong_state(f"rule {rule.name}", key, value, valid)


def wrong_state(what: str, key: str, value: object, valid: str) -> StateError:
    """Returns the error for one value of a saved state, in one sentence."""
    return StateError(f"State of {what}: {key} has the value {value!r}, which is not valid: {valid}.")


def saved_keys(what: str, state: object, keys: Iterable[str]) -> Mapping[str, Any]:
    """Returns `state` if it is a mapping with exactly these keys; raises StateError otherwise."""
    wanted = list(keys)
    if isinstance(state, Mapping) and set(state) == set(wanted):
        return state
    found = f"the keys {', '.join(map(str, state))}" if isinstance(state, Mapping) else f"the value {state!r}"
    raise StateError(f"State of {what} has {found}, which is not valid: the keys {', '.join(wanted)}.")


def saved_number(what: str, key: str, value: object, low: float | None = None) -> float:
    """Returns `value` as a float if it is a finite number of at least `low`; raises StateError otherwise."""
    number = as_float(value)
    if number is not None and isfinite(number) and (low is None or number >= low):
        return number
    raise wrong_state(what, key, value, "a finite number" if low is None else f"a finite number of at least {low:g}")


def saved_count(what: str, key: str, value: object) -> int:
    """Returns `value` if it is an integer of at least 0; raises StateError otherwise."""
    if isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0:
        return int(value)
    raise wrong_state(what, key, value, "an integer of at least 0")


def saved_numbers(what: str, key: str, values: object, size: int) -> list[float]:
    """Returns `values` as floats if they are `size` finite numbers; raises StateError otherwise."""
    if isinstance(values, list | tuple) and len(values) == size:
        return [saved_number(what, key, value) for value in values]
    raise wrong_state(what, key, values, f"a list of {size} numbers")


def as_float(value: object) -> float | None:
    """Returns a real number as a float; None for other types, for True and False, and for too large integers."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def largest_root(limit: float) -> float:
    """Returns the largest float whose square is not above `limit`, which is at least 0."""
    if limit == inf:
        return inf
    if limit < _SMALLEST_SQUARE:
        return max(sqrt(limit), _LARGEST_ROOT_OF_ZERO)
    root = sqrt(limit)
    while root * root > limit:  # rounded to the nearest, so the next float above is always too large
        root = nextafter(root, 0.0)
    return root
