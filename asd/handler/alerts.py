"""Alerts on their way from the webhook to the handler."""

from __future__ import annotations

import contextlib
import queue
import threading

from asd.handler.decision import Decision
from asd.handler.handler import FaultHandler
from asd.handler.webhook import Alert

__all__ = ["AlertBox"]

_MOST = 1000


class AlertBox:
    """Takes alerts from any thread and keeps them until the logs have been read.

    Args:
        wake: Is set when alerts came: there may be something new in the logs.
    """

    def __init__(self, wake: threading.Event) -> None:
        self._wake = wake
        self._alerts: queue.Queue[Alert] = queue.Queue(_MOST)
        self._known: dict[str, None] = {}

    def receive(self, alerts: list[Alert]) -> None:
        """Takes alerts; of more than a thousand at once the others only wake."""
        with contextlib.suppress(queue.Full):
            for alert in alerts:
                self._alerts.put_nowait(alert)
        self._wake.set()

    def empty_into(self, handler: FaultHandler) -> list[Decision]:
        """Has `handler` note the alerts that nothing in the logs explains; to be called when these have been read."""
        notes = []
        while not self._alerts.empty():
            alert = self._alerts.get_nowait()
            if not alert.firing or alert.key in self._known:
                continue
            self._known[alert.key] = None
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
            host, number = alert.labels.get("node", ""), alert.labels.get("id", "")
            if not handler.has_raised(host, number):
                name = alert.labels.get("alertname", "without a name")
                where = f"device {number or '?'} of {host}" if host else "no device"
                notes.append(handler.note(f"The alert {name} names {where}, of which no event log tells."))
        return notes
