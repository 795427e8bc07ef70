"""Alerts of Alertmanager on their way to the handler.

An alert is a wake-up call and no event store: Alertmanager groups, delays, repeats and drops. What happened is read
from the event logs, at once.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from asd.handler.decision import Decision
from asd.handler.handler import FaultHandler
from asd.records import fill, parse

__all__ = ["Alert", "AlertBox", "parse_alerts"]

_MOST = 1000
_AT_ONCE = 200  # between two looks at the logs: what these say comes first
_MOST_IN_MESSAGE = 10_000


@dataclass
class Alert:
    """One alert, as Alertmanager sends it.

    Attributes:
        labels: Its labels.
        fingerprint: The same for the same labels; empty when it is not told.
        startsAt: When it began to fire.
        status: `firing` or `resolved`.
    """

    labels: dict[str, str]
    fingerprint: str = ""
    startsAt: str = ""  # noqa: N815 - as Alertmanager spells it
    status: str = ""

    @property
    def key(self) -> str:
        """The same for the same alert however often it is sent."""
        return f"{self.fingerprint or sorted(self.labels.items())} {self.startsAt}"


@dataclass
class _Message:
    version: Annotated[Literal["4"], Meta(description="'4', as Alertmanager sends it")]
    alerts: Annotated[
        list[Alert],
        Meta(max_length=_MOST_IN_MESSAGE, description=f"a list of at most {_MOST_IN_MESSAGE} alerts with labels"),
    ]


def parse_alerts(body: bytes) -> list[Alert]:
    """Reads what Alertmanager posts.

    Raises:
        StateError: It is no such JSON; the sentence says what is wrong.
    """
    name = "message of Alertmanager"
    return fill(_Message, parse(body, name, "the JSON that a webhook gets"), name).alerts


class AlertBox:
    """Takes alerts from any thread and keeps them until the logs have been read.

    Args:
        wake: Is set when alerts came: there may be something new in the logs.
    """

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake
        self._alerts: queue.Queue[Alert] = queue.Queue(_MOST)
        self._known: dict[str, None] = {}

    def take(self, body: bytes) -> str:
        """Takes a message of Alertmanager; returns what to answer.

        Raises:
            StateError: It is no message of Alertmanager.
        """
        alerts = parse_alerts(body)
        self.receive(alerts)
        return f"{len(alerts)} alerts taken in."

    def receive(self, alerts: list[Alert]) -> None:
        """Takes alerts; of more than a thousand at once the others only wake."""
        with contextlib.suppress(queue.Full):
            for alert in alerts:
                self._alerts.put_nowait(alert)
        self._wake.set()

    def empty_into(self, handler: FaultHandler) -> list[Decision]:
        """The alerts that nothing in the logs explains, for people; to be called when these have been read.

        It takes a bounded number, so that no flood of them keeps the handler from the logs; `wake` is set while there
        are more.
        """
        notes = []
        for _ in range(_AT_ONCE):
            if self._alerts.empty():
                break
            alert = self._alerts.get_nowait()
            if alert.status == "resolved" or alert.key in self._known:
                continue
            self._known[alert.key] = None
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
            host, number = alert.labels.get("node", ""), alert.labels.get("id", "")
            if not handler.has_raised(host, number):
                name = alert.labels.get("alertname", "without a name")
                where = f"device {number or '?'} of {host}" if host else "no device"
                reason = f"The alert {name} names {where}, of which no event log tells."
                notes.append(Decision(action="alert", reason=reason, time=time.time()))
        if not self._alerts.empty():
            self._wake.set()
        return notes
