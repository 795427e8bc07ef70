"""Strikes, their window, and when the checksum runs: the decisions of the vendor's combined scheme."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from asd.settings.combined import CombinedConfig

__all__ = ["Action", "CombinedScheme", "Message", "Poll", "Strike"]

_MINUTE = 60.0


class Strike(Enum):
    """What became of an abnormal value."""

    RECORDED = "recorded"
    COOLED = "cooled"
    """Another one was recorded less than `cooldown` ago, whatever its name."""
    IGNORED = "ignored"
    """The checksum is running."""


class Action(Enum):
    """What all ranks do next."""

    NONE = "none"
    START = "start"
    STOP = "stop"


class Message(NamedTuple):
    """What one rank tells the others.

    Attributes:
        now: Seconds since the epoch; those of rank 0 count for all.
        struck_out: Whether the rank has enough strikes.
        failed: Whether a product of it did not fit its checksum since the checksum was started.
    """

    now: float
    struck_out: bool
    failed: bool


class Poll(NamedTuple):
    """What the ranks agreed on.

    Attributes:
        action: What to do.
        ranks: With `START` those that struck out, with `STOP` those whose products did not fit.
    """

    action: Action
    ranks: tuple[int, ...] = ()


class CombinedScheme:
    """The strikes of one rank, and the state of the checksum that all ranks share."""

    def __init__(self, config: CombinedConfig) -> None:
        self.config = config
        self._last: float | None = None  # the last strike that was recorded; one clock for all names
        self._strikes: list[float] = []
        self._started: float | None = None
        self._failed = False
        self.running = False

    def strike(self, now: float) -> Strike:
        """Takes in an abnormal value seen at `now`, in seconds since the epoch."""
        if self._last is not None and not self._last + self.config.cooldown * _MINUTE < now:
            return Strike.COOLED
        self._last = now
        if self.running:
            return Strike.IGNORED
        if self.config.with_checksum:
            self._strikes.append(now)
        return Strike.RECORDED

    def strikes(self, now: float) -> int:
        """Strikes that count at `now`."""
        oldest = now - self.config.strikes_window * _MINUTE
        self._strikes = [time for time in self._strikes if time >= oldest]
        return len(self._strikes)

    def message(self, now: float, *, failed: bool) -> Message:
        """What this rank has to tell the others at `now`.

        Args:
            now: Seconds since the epoch.
            failed: Whether a product did not fit its checksum since the last call.
        """
        self._failed = self._failed or failed
        return Message(now, self.strikes(now) >= self.config.strikes_num, self._failed)

    def poll(self, messages: Sequence[Message]) -> Poll:
        """What all ranks do, from the message of each; they all call this with the same messages."""
        now = messages[0].now
        if self.running:
            if self._started is not None and now - self._started >= self.config.cooldown * _MINUTE:
                self.running = False
                return Poll(Action.STOP, tuple(rank for rank, told in enumerate(messages) if told.failed))
            return Poll(Action.NONE)
        struck_out = tuple(rank for rank, told in enumerate(messages) if told.struck_out)
        rested = self._started is None or now - self._started >= self.config.checksum_cooldown * _MINUTE
        if not struck_out or not rested or not self.config.with_checksum:
            return Poll(Action.NONE)
        self.running, self._started, self._failed = True, now, False
        self._strikes.clear()  # of a strike-out each strike is used up, on every rank
        return Poll(Action.START, struck_out)

    def state(self) -> dict[str, Any]:
        """What a resumed training needs; JSON-able."""
        return {
            "last": self._last,
            "strikes": list(self._strikes),
            "started": self._started,
            "running": self.running,
            "failed": self._failed,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from what `state` returned."""
        self._last, self._started = state["last"], state["started"]
        self._strikes = list(state["strikes"])
        self.running, self._failed = bool(state["running"]), bool(state["failed"])
