"""Which devices a job has, which of them work, and which are kept away from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from asd.errors import StateError
from asd.event import Event
from asd.strikes import StrikeWindow

__all__ = ["Devices"]


class Devices:
    """The devices of one job on this machine, by number.

    A device is left out for good, or on the bench: it is under suspicion and only used when there is no other.

    Args:
        known: All of them: the first `ranks` begin, the rest are spares.
        ranks: How many the job wants.
        fewest: How many it needs at least.

    Attributes:
        out: Devices that are left out, each with the reason.
        bench: Devices under suspicion, the latest last.
    """

    def __init__(self, known: Sequence[int], ranks: int, fewest: int) -> None:
        self.known = list(known)
        self.ranks = ranks
        self.fewest = fewest
        self.out: dict[int, str] = {}
        self.bench: list[int] = []
        self._strikes: dict[int, StrikeWindow] = {}

    def choose(self, last: Sequence[int] = ()) -> list[int]:
        """The device of each rank for the next attempt; empty when there are too few.

        A rank keeps its device if it can. When a device under suspicion has to work, it gets another rank than before:
        a fault that moves with it is the device's, one that stays with the rank is not.

        Args:
            last: The device of each rank in the attempt before.
        """
        usable = [device for device in self.known if device not in self.out]
        trusted = [device for device in usable if device not in self.bench]
        count = min(self.ranks, len(usable))
        if count < self.fewest:
            return []
        chosen = (trusted + [device for device in self.bench if device in usable])[:count]
        places: list[int | None] = [device if device in chosen else None for device in last[:count]]
        places += [None] * (count - len(places))
        rest = iter([device for device in chosen if device not in places])
        result = [next(rest) if device is None else device for device in places]
        unmoved = [device for device, before in zip(result, last, strict=False) if device == before]
        if count > 1 and any(device in self.bench for device in unmoved):
            result = result[1:] + result[:1]
        return result

    def leave_out(self, device: int, reason: str) -> None:
        """Never uses `device` again, until it is given back."""
        self.out.setdefault(device, reason)
        self.clear_suspicion(device)

    def suspect(self, device: int) -> None:
        """Uses `device` only when there is no other."""
        self.clear_suspicion(device)
        self.bench.append(device)

    def clear_suspicion(self, device: int) -> None:
        """Uses `device` as any other."""
        if device in self.bench:
            self.bench.remove(device)

    def give_back(self, device: int, time: float) -> bool:
        """Uses a device again that was left out; returns whether it was."""
        self._window(device).clear(time)
        self.clear_suspicion(device)
        return self.out.pop(device, None) is not None

    def strike(self, device: int, event: Event) -> int:
        """Counts a first-level anomaly of `device`; returns its strikes of the last eight hours."""
        window = self._window(device)
        window.add(event)
        return window.in_window(event.time)

    def revoke(self, device: int, time: float) -> None:
        """Takes back what was held against `device` up to `time`: it was not its fault."""
        self._window(device).clear(time)
        self.clear_suspicion(device)

    def _window(self, device: int) -> StrikeWindow:
        return self._strikes.setdefault(device, StrikeWindow())

    def state(self) -> dict[str, Any]:
        """Everything a new supervisor must know, JSON-able."""
        return {
            "out": {str(device): reason for device, reason in self.out.items()},
            "bench": self.bench,
            "strikes": {str(device): window.state() for device, window in self._strikes.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned.

        Raises:
            StateError: It is no such state. Nothing was changed then.
        """
        strikes: dict[int, StrikeWindow] = {}
        try:
            out = {int(device): str(reason) for device, reason in state["out"].items()}
            bench = [int(device) for device in state["bench"]]
            for device, window in state["strikes"].items():
                strikes[int(device)] = StrikeWindow()
                strikes[int(device)].restore(window)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"the saved devices can't be used: {error!r} in {str(state)[:80]!r}.") from error
        self.out, self.bench, self._strikes = out, bench, strikes
