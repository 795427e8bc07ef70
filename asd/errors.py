"""Every error the package raises on purpose.

    ASDError
    ├── ConfigError        a wrong environment variable, option or argument (also a ValueError)
    ├── StateError         a saved rule state that is corrupt or belongs to another network (also a ValueError)
    ├── UnsupportedError   a mode or network that cannot be checked (also a RuntimeError)
    ├── IsolationError     an engine that did not take a device out or give it back (also a RuntimeError)
    ├── RankLostError      a rank that died or hangs while the others wait for it (also a RuntimeError)
    ├── OverflowDetected   ends a training after as many overflows as were allowed (also a ValueError)
    └── AnomalyDetected    ends a training after a first-level anomaly (also a RuntimeError)
        └── TrainingResultError    the same, where MindSpore rolls the training back

Each message says what was wrong, where, which value it had, and what would be valid, in one sentence.
"""

from __future__ import annotations

import copyreg
from typing import Any

from asd.isolator import Device


class ASDError(Exception):
    """Base class of all errors of this package; each can be sent to another process."""

    def __reduce__(self) -> tuple[object, ...]:
        # Not by `__init__`, whose arguments are not the sentence.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class ConfigError(ASDError, ValueError):
    """A setting has a value that is not valid.

    Attributes:
        variable: Name of the environment variable, option or argument.
        value: The value it had.
        valid: What would be valid, in words.
    """

    def __init__(self, variable: str, value: object, valid: str) -> None:
        self.variable = variable
        self.value = value
        self.valid = valid
        # A key of a file that somebody else wrote may be anything.
        name = variable if variable.isprintable() else repr(variable)
        super().__init__(f"{name} has the value {value!r}, which is not valid: {valid}.")


class StateError(ASDError, ValueError):
    """A saved state can't be used: it is corrupt, of another version, or of another network."""


class UnsupportedError(ASDError, RuntimeError):
    """Something that cannot be checked was asked to be checked; the sentence names it."""


class IsolationError(ASDError, RuntimeError):
    """An engine did not take a device out, did not give it back, or did not say who holds it.

    Attributes:
        device: The device, an `asd.isolator.Device`.
        engine: Name of the isolator.
        reason: What went wrong, in words and without a full stop.
        retry: Whether trying again soon may help: true for a time-out, false for a request that is refused. The fault
            handler tries both again, and tells people of the latter at once.
    """

    def __init__(self, device: Device, engine: str, reason: str, *, retry: bool = True) -> None:
        self.device = device
        self.engine = engine
        self.reason = reason
        self.retry = retry
        super().__init__(f"{engine} failed for {device}: {reason}.")


class RankLostError(ASDError, RuntimeError):
    """A rank waited for the others in an exchange, and not all of them answered.

    Attributes:
        rank: The one that waited.
        lost: The ranks that are known to have died or to be stopped; empty when none is known.
        seconds: How long it waited.
        known: What is known of the others, in words and without a full stop; empty for nothing.
    """

    def __init__(self, rank: int, lost: tuple[int, ...], seconds: float, known: str = "") -> None:
        self.rank = rank
        self.lost = lost
        self.seconds = seconds
        self.known = known
        why = known or "which rank did not answer can't be told, for none of this machine has died or is stopped"
        super().__init__(f"rank {rank} gave up an exchange of the ranks after {seconds:.1f} s: {why}.")


class AnomalyDetected(ASDError, RuntimeError):
    """Training was ended because a checked value broke its first-level limit.

    Attributes:
        event: The `asd.Event` of the anomaly.
    """

    def __init__(self, event: Any) -> None:  # its module imports this one
        self.event = event
        super().__init__(event.sentence())


class TrainingResultError(AnomalyDetected):
    """An anomaly handed over to `mindspore.train.TrainFaultTolerance`, which goes on from a good state.

    MindSpore knows it by the word TREError in its text.
    """

    def __str__(self) -> str:
        return f"TREError: {self.event.sentence()}"


class OverflowDetected(ASDError, ValueError):
    """Training was ended because calls overflowed.

    Attributes:
        name: Of the last of them, such as `Functional.linear.145.backward`.
        count: How many overflowed.
        path: The record of the last one; empty when it could not be written.
    """

    def __init__(self, name: str, count: int, path: str) -> None:
        self.name = name
        self.count = count
        self.path = path
        super().__init__(f"[overflow {count} times]: {name} overflowed; dump file is saved in '{path}'.")
