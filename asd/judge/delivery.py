"""Hands events and steps to the sinks: one that raises is counted, and the others get theirs all the same."""

from collections.abc import Callable, Sequence
from typing import Any

from asd.event import Event
from asd.judge.status import Status

Sink = Callable[[Event], None]


class Delivery:
    """To the sinks of one monitor; what else a sink may have is told in `asd.sinks`.

    Every call returns sentences about what failed for the first time, for the monitor to report as problems.

    Args:
        sinks: Called in this order; the list may change.
        status: Failures are counted there.
    """

    def __init__(self, sinks: Sequence[Sink], status: Status) -> None:
        self._sinks, self._status = sinks, status
        self._failed: set[tuple[int, str]] = set()

    def event(self, event: Event) -> list[str]:
        """Hands `event` to every sink."""
        what = "an event can't be handed to"
        return [reason for sink in tuple(self._sinks) if (reason := self._call(sink, what, sink, event))]

    def step(self, monitor: Any, events: Sequence[Event]) -> list[str]:
        """Calls the sinks that follow each step of `monitor`, with its `events`."""
        hooks = [(sink, sink.after_step) for sink in self._sinks if hasattr(sink, "after_step")]
        what = "a step can't be handed to"
        return [reason for sink, hook in hooks if (reason := self._call(sink, what, hook, monitor, events))]

    def place(self, step: int) -> tuple[str, list[str]]:
        """Returns the future place of `step`'s evidence, known before it is written so that the event can name it."""
        failures: list[str] = []
        for sink in self._sinks:
            if hasattr(sink, "place"):
                try:
                    if place := str(sink.place(step)):
                        return place, failures
                except Exception as error:  # as any other failure of a sink
                    failures += filter(None, [self._failure(sink, "no place for evidence from", error)])
        return "", failures

    def _call(self, sink: Sink, what: str, function: Callable[..., object], *args: Any) -> str:
        """Calls `function` of `sink`; returns a report of its failure, if it is the first."""
        try:
            function(*args)
        except Exception as error:  # a full disk or a dead socket must not end a training
            return self._failure(sink, what, error)
        return ""

    def _failure(self, sink: Sink, what: str, error: Exception) -> str:
        name = getattr(sink, "__qualname__", type(sink).__name__)
        self._status.dropped[name] = self._status.dropped.get(name, 0) + 1
        if (id(sink), what) not in self._failed:
            self._failed.add((id(sink), what))
            return f"{what} {name}: {error}"
        self._status.problems += 1
        return ""
