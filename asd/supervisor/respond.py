"""What follows from the end of an attempt: for the devices, and for the job."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from asd.event import Event
from asd.supervisor.decide import Finding, find_urgent
from asd.supervisor.devices import Devices
from asd.supervisor.record import Attempt, Record
from asd.verdict import Level

__all__ = ["DONE", "FAILED", "INTERRUPTED", "NOT_A_DEVICE", "NO_DEVICE_LEFT", "TERMINATED", "End", "Responder"]

DONE, FAILED, NO_DEVICE_LEFT, NOT_A_DEVICE, INTERRUPTED, TERMINATED = 0, 1, 16, 17, 130, 143
_STRIKES = 3
_REPLAY_SECONDS = 30.0  # a verdict may come so long after its anomaly


class End(NamedTuple):
    """That there is nothing left to try.

    Attributes:
        code: The exit code.
        reason: Why, in one sentence.
    """

    code: int
    reason: str


class Responder:
    """Acts upon findings.

    Args:
        devices: The devices of the job.
        record: What is known of it.
        say: Takes a sentence for people.
        publish: Takes the events of devices that are left out; called when that is on disk.
        save: Saves devices and record.
        clock: Seconds since the epoch.
    """

    def __init__(
        self, devices: Devices, record: Record, *, say: Callable[[str], None], publish: Callable[[Event], None],
        save: Callable[[], None], clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._devices, self._record = devices, record
        self._say, self._publish, self._save, self._clock = say, publish, save, clock

    def leave_out(self, device: int, reason: str, event: Event) -> None:
        """Never uses `device` again; nothing happens to one that is out."""
        if device in self._devices.out:
            return
        self._devices.leave_out(device, reason)
        self._save()
        self._say(f"device {device} is left out: {reason}.")
        if event.kind != "isolation":
            self._publish(self._isolation(event, device, reason))

    def bad(self, attempt: Attempt, events: Sequence[Event], *, goes_on: bool) -> str:
        """Why a device of a running attempt must not work any more; empty while all may.

        Args:
            attempt: The attempt.
            events: Its events so far.
            goes_on: Whether the training goes on after a first-level anomaly, so that strikes add up meanwhile.
        """
        urgent = find_urgent(events, attempt.devices)
        if urgent is not None:
            self.leave_out(urgent.device, urgent.reason, urgent.event)
        if goes_on:
            now = self._clock()
            excused = {event.step for event in events if event.kind == "replay" and event.verdict == "software"}
            ripe = [event for event in events if event.step not in excused and now - event.time > _REPLAY_SECONDS]
            self.strike(attempt, ripe, None)
        out = [device for device in attempt.devices if device in self._devices.out]
        return f"device {out[0]} was left out: {self._devices.out[out[0]]}" if out else ""

    def strike(self, attempt: Attempt, events: Sequence[Event], finding: Finding | None) -> None:
        """Counts the strikes of an attempt, whatever it ended of."""
        if finding is not None and finding.kind in ("software", "unclear"):
            return
        for event in events:
            if event.kind != "anomaly" or event.level is not Level.ERROR or not 0 <= event.rank < len(attempt.devices):
                continue
            device = attempt.devices[event.rank]
            if finding is not None and finding.event.step == event.step and finding.device != device:
                continue  # dragged along
            strikes = self._devices.strike(device, event)
            if strikes >= _STRIKES:
                self.leave_out(device, f"it has {strikes} strikes within 480 minutes", event)

    def act(self, attempt: Attempt, finding: Finding) -> End | None:
        """Does what the finding asks for; returns an end when another attempt is in vain."""
        step, device = finding.event.step, finding.device
        if finding.kind == "persistent":
            self.leave_out(device, finding.reason, finding.event)
        elif finding.kind == "transient":
            if device not in self._devices.out:
                self._say(f"step {step}: {finding.reason}: a strike for device {device}, which goes on.")
        elif finding.kind == "suspect":
            self._record.remember(finding.mark())
            self._devices.suspect(device)
            self._say(f"step {step}: device {device} is under suspicion: {finding.reason}.")
        else:
            return self._nobody(attempt, finding)
        return None

    def heed(self, events: Sequence[Event]) -> None:
        """Takes in what others say about the devices of this machine; what was heeded before is passed over."""
        for event in sorted(events, key=lambda event: event.time):
            if event.time <= self._record.heeded or event.host != socket.gethostname():
                continue
            self._record.heeded = event.time
            number = event.device.partition(":")[2]
            if not (number.isdigit() and int(number) in self._devices.known):
                continue
            if event.kind == "isolation":
                self.leave_out(int(number), event.reason, event)
            elif self._devices.give_back(int(number), event.time):
                self._say(f"device {number} is back: {event.reason}.")

    def _nobody(self, attempt: Attempt, finding: Finding) -> End | None:
        now = self._clock()
        for device in attempt.devices:
            self._devices.revoke(device, now)
        for mark in self._record.marks:
            if finding.again and mark.step == finding.event.step:
                self._devices.revoke(mark.device, now)
        what = "software or data" if finding.kind == "software" else "nobody can be named"
        sentence = f"step {finding.event.step}: {what}, no device is left out: {finding.reason}"
        if finding.again or self._record.tried_again:
            return End(NOT_A_DEVICE, f"{sentence}; another attempt would meet the same.")
        self._record.tried_again = True
        self._say(f"{sentence}; it is tried once more.")
        return None

    def _isolation(self, event: Event, device: int, reason: str) -> Event:
        kind = event.device.partition(":")[0]
        return replace(
            event, kind="isolation", level=Level.NORMAL, checkpoint="", micro_batch=0, device=f"{kind}:{device}",
            reason=f"local left out device {device}: {reason}", time=self._clock(), key=f"local:{device}",
        )  # fmt: skip
