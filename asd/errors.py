"""Every error the package raises on purpose.

    ASDError
    ├── ConfigError        a wrong environment variable, option or argument (also a ValueError)
    ├── StateError         a saved rule state that is corrupt or belongs to another network (also a ValueError)
    ├── UnsupportedError   a mode or network that cannot be checked (also a RuntimeError)
    ├── IsolationError     a scheduler that did not isolate or release a device (also a RuntimeError)
    ├── RankLostError      a rank that died or hangs while the others wait for it (also a RuntimeError)
    ├── OverflowDetected   ends a training after as many overflows as were allowed (also a ValueError)
    └── AnomalyDetected    ends a training after a first-level anomaly (also a RuntimeError)
        └── TrainingResultError    the same, where MindSpore rolls the training back

Each message has the place, the wrong value, and what would be valid, in one sentence.
"""

import copyreg
from collections.abc import Sequence
from typing import Any

from asd.isolator import Device


def and_more(names: Sequence[object], most: int = 3, between: str = ", ") -> str:
    """Returns the first names of a message, and the number of the others.

    >>> and_more(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return between.join(map(str, names[:most])) + (f" and {len(names) - most:,} more" if len(names) > most else "")


def how_many(count: int, noun: str, plural: str = "") -> str:
    """Returns `count` with its noun.

    >>> how_many(2, "rank")
    '2 ranks'
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def printable(text: str) -> str:
    r"""Returns `text` for one line: without line breaks and control sequences, which names may contain.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape", "backslashreplace").decode()
        for letter in text
    )


class ASDError(Exception):
    """Base class of all errors of this package; each can be sent to another process."""

    def __reduce__(self) -> tuple[object, ...]:
        # Not by `__init__`, whose arguments are not the sentence.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(ASDError, ValueError):
    """Raised for a setting with an invalid value.

    Attributes:
        variable: Name of the environment variable, option or argument.
        value: The invalid value.
        valid: Description of valid values.
    """

    def __init__(self, variable: str, value: object, valid: str) -> None:
        self.variable = variable
        self.value = value
        self.valid = valid
        # A key in a file from elsewhere may contain anything.
        name = variable if variable.isprintable() else repr(variable)
        super().__init__(f"{name} has the value {value!r}, which is not valid: {valid}.")


class StateError(ASDError, ValueError):
    """Raised for a saved state that is corrupt, of another version, or of another network."""


class UnsupportedError(ASDError, RuntimeError):
    """Raised for a mode or network that cannot be checked; the message names it."""


class IsolationError(ASDError, RuntimeError):
    """Raised when a scheduler did not isolate a device, did not release it, or did not report who isolated it.

    Attributes:
        device: The device, an `asd.isolator.Device`.
        engine: Name of the isolator.
        reason: Failure as text, without a full stop.
        retry: Whether a retry soon may help: true for a time-out, false for a refused request. The fault handler
            retries both, and reports the latter at once.
    """

    def __init__(self, device: Device, engine: str, reason: str, *, retry: bool = True) -> None:
        self.device = device
        self.engine = engine
        self.reason = reason
        self.retry = retry
        super().__init__(f"{engine} failed for {device}: {reason}.")


class RankLostError(ASDError, RuntimeError):
    """Raised when not all ranks answered in an exchange.

    Attributes:
        rank: Rank that waited.
        lost: Ranks that are known to have died or to be stopped; empty if unknown.
        seconds: Seconds that it waited.
        known: Knowledge about the others as text, without a full stop; empty for none.
    """

    def __init__(self, rank: int, lost: tuple[int, ...], seconds: float, known: str = "") -> None:
        self.rank = rank
        self.lost = lost
        self.seconds = seconds
        self.known = known
        why = known or "the rank that did not answer is unknown: none on this machine died or is stopped"
        super().__init__(f"rank {rank} gave up an exchange of the ranks after {seconds:.1f} s: {why}.")


class AnomalyDetected(ASDError, RuntimeError):
    """Raised to end training after a checked value broke its first-level limit.

    Attributes:
        event: The `asd.Event` of the anomaly.
    """

    def __init__(self, event: Any) -> None:  # its module imports this one
        self.event = event
        super().__init__(event.sentence())


class TrainingResultError(AnomalyDetected):
    """Anomaly for `mindspore.train.TrainFaultTolerance`, which resumes from a good state.

    MindSpore recognizes it by the word TREError in its text.
    """

    def __str__(self) -> str:
        return f"TREError: {self.event.sentence()}"


class OverflowDetected(ASDError, ValueError):
    """Raised to end training after calls overflowed.

    Attributes:
        name: Name of the last of them, such as `Functional.linear.145.backward`.
        count: Number of calls that overflowed.
        path: The record of the last one; empty when it could not be written.
    """

    def __init__(self, name: str, count: int, path: str) -> None:
        self.name = name
        self.count = count
        self.path = path
        super().__init__(f"[overflow {count} times]: {name} overflowed; dump file is saved in '{path}'.")
