"""Strikes: how often one device has been at fault lately.

A strike is one training step in which a device produced at least one first-level anomaly: a wrong gradient flows on
through the checkpoints behind it, so one fault is seen many times. Three strikes within eight hours make a suspect, as
in MindSpore's combined check and in mindformers' monitor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from asd.errors import StateError
from asd.event import Event
from asd.verdict import Level

__all__ = ["LIMIT", "WINDOW_SECONDS", "StrikeWindow", "device_key", "moment"]

LIMIT = 3
WINDOW_SECONDS = 480 * 60.0
COOLDOWN_SECONDS = 300.0
"""Anomalies whose step is not known are one strike when they are no further apart, as in the vendor's check."""
_MOST = 1000


def moment(event: Event) -> int:
    """The step that tells when `event` was; 0 when none does.

    What was read from the vendor's logs has a key, and its step counts the checks since the start of one process, of
    which many share a run: the same number is not the same moment.
    """
    return 0 if event.key else event.step


def device_key(host: str, device: str, rank: int) -> tuple[str, str, int]:
    """What tells devices apart: an accelerator is the same in every run and under every rank."""
    kind, colon, _ = device.partition(":")
    shared = not colon or kind == "CPU"  # every process of a machine has the CPU:0
    return host, device, rank if shared else -1


class StrikeWindow:
    """The strikes of one device.

    Times are those of the events. They may be out of order, because several logs are read one after the other and
    clocks are set back. A strike that seems to lie ahead counts: evidence is not forgotten because of a clock.

    Args:
        limit: So many strikes in the window make a suspect.
        window_seconds: How long a strike counts.

    >>> StrikeWindow().in_window(now=0.0)
    0
    """

    def __init__(self, limit: int = LIMIT, window_seconds: float = WINDOW_SECONDS) -> None:
        self.limit = limit
        self.window_seconds = window_seconds
        self._strikes: dict[tuple[str, int], float] = {}  # (run, step) to seconds since the epoch; the last 1000
        self._unknown_step = 0  # how many strikes had no step; they get the keys -1, -2, and so on
        self._cleared: float | None = None

    def add(self, event: Event) -> bool:
        """Takes in an event of this device; returns whether it is a new strike.

        Everything but a first-level anomaly of a new step is no new strike.
        """
        if event.kind != "anomaly" or event.level is not Level.ERROR or self._is_known(event):
            return False
        step = moment(event)
        if not step:
            self._unknown_step += 1
            step = -self._unknown_step
        self._strikes[event.run, step] = event.time
        if len(self._strikes) > _MOST:
            del self._strikes[next(iter(self._strikes))]
        return True

    def clear(self, time: float) -> None:
        """Forgets the strikes up to `time`, in seconds since the epoch: the device was repaired and given back."""
        self._strikes = {key: when for key, when in self._strikes.items() if when > time}
        self._cleared = time

    def in_window(self, now: float) -> int:
        """How many strikes count at `now`, in seconds since the epoch; at most 1000."""
        oldest = now - self.window_seconds
        if self._cleared is not None and self._cleared <= now:  # one that seems to lie ahead proves nothing
            oldest = max(oldest, self._cleared)
        return sum(when > oldest for when in self._strikes.values())

    def suspect(self, now: float) -> bool:
        """Whether there are `limit` strikes or more in the window."""
        return self.in_window(now) >= self.limit

    def state(self) -> dict[str, Any]:
        """Everything that was counted, JSON-able."""
        return {
            "strikes": [[run, step, when] for (run, step), when in self._strikes.items()],
            "unknown_step": self._unknown_step,
            "cleared": self._cleared,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            StateError: It is no such state. Nothing was changed then.
        """
        try:
            strikes = {(str(run), int(step)): float(when) for run, step, when in state["strikes"][-_MOST:]}
            unknown_step = int(state["unknown_step"])
            cleared = None if state["cleared"] is None else float(state["cleared"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise StateError(f"a saved strike window can't be used: {error!r} in {str(state)[:80]!r}.") from error
        self._strikes, self._unknown_step, self._cleared = strikes, unknown_step, cleared

    def _is_known(self, event: Event) -> bool:
        if step := moment(event):
            return (event.run, step) in self._strikes
        times = (when for (run, step), when in self._strikes.items() if run == event.run and step < 0)
        return any(abs(event.time - when) <= COOLDOWN_SECONDS for when in times)
