"""The two doors by which ClusterD takes public faults, each remembering what it was told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from asd.exporters.isolators.public_fault import message_text, validate
from asd.rundir.disk import write_whole

__all__ = ["Door", "DoorError", "MessageAllowance", "StateFile", "ToldFaults"]


class DoorError(Exception):
    """A door that can't be used, or a message that ClusterD did not take.

    Attributes:
        reason: Why, in words and without a full stop.
        retry: Whether trying again may help.
    """

    def __init__(self, reason: str, *, retry: bool) -> None:
        self.reason = reason
        self.retry = retry
        super().__init__(reason)


class ToldFaults(NamedTuple):
    """What a door was told.

    Attributes:
        message: The last message; None before the first.
        pending: Ids of faults whose last change ClusterD has not confirmed.
        version: What tells this state from a later one.
    """

    message: dict[str, Any] | None
    pending: Collection[str] = ()
    version: str = ""


class Door(Protocol):
    """One way to tell ClusterD."""

    def told(self) -> ToldFaults:
        """What it was told last.

        Raises:
            DoorError: It can't say.
        """
        ...

    def tell(self, message: dict[str, Any], fault_id: str, before: ToldFaults) -> bool:
        """Tells a message in which the fault with this id is new or has recovered.

        Returns:
            False when somebody else has told something since `before`.

        Raises:
            DoorError: ClusterD was not told, or did not take it.
        """
        ...

    def separated(self, node: str) -> Collection[int]:
        """The chips of `node` that somebody else has separated by hand, as far as the door can see."""
        ...


class MessageAllowance:
    """ClusterD takes 100 messages at once, then one a second; more are dropped, so they are not sent.

    Args:
        clock: Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, burst: float = 100.0) -> None:
        self._clock = clock
        self._burst = burst
        self._left = burst
        self._seen = clock()

    def take(self) -> None:
        """Uses one message.

        Raises:
            DoorError: There is none left now.
        """
        now = self._clock()
        self._left = min(self._burst, self._left + now - self._seen)
        self._seen = now
        if self._left < 1:
            wait = 1 - self._left
            raise DoorError(
                f"ClusterD takes no more messages than one a second; the next may go in {wait:.1f} s", retry=True
            )
        self._left -= 1


class StateFile:
    """What was told, in a file: a door without a memory of its own needs one.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> ToldFaults:
        """What `write` wrote; nothing before that.

        Raises:
            DoorError: The file can't be read, or holds something else.
        """
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            message, pending = found["message"], found["pending"]
            validate(message)
        except FileNotFoundError:
            return ToldFaults(None)
        except OSError as error:
            raise DoorError(f"{self._path} can't be read: {error.strerror or error}", retry=True) from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DoorError(f"{self._path} is corrupt: {error}", retry=False) from error
        return ToldFaults(message, frozenset(pending), message["id"])

    def write(self, message: dict[str, Any], pending: Collection[str]) -> None:
        """Remembers a message.

        Raises:
            DoorError: The file can't be written.
        """
        message_text(message)
        try:
            write_whole(self._path, json.dumps({"message": message, "pending": sorted(pending)}, indent=1))
        except OSError as error:
            raise DoorError(f"{self._path} can't be written: {error.strerror or error}", retry=True) from error
