"""What follows from the end of an attempt for the job."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from asd.supervisor.cause import Cause
from asd.supervisor.own_handler import OwnHandler
from asd.supervisor.record import Record

DONE, FAILED, NO_DEVICE_LEFT, NOT_A_DEVICE, INTERRUPTED, TERMINATED = 0, 1, 16, 17, 130, 143


class End(NamedTuple):
    """That there is nothing left to try.

    Attributes:
        code: The exit code.
        reason: Why, in one sentence.
    """

    code: int
    reason: str


def next_move(finding: Cause, handling: OwnHandler, record: Record, say: Callable[[str], None]) -> End | None:
    """Says what follows from why an attempt ended; returns an end when another one is in vain.

    Args:
        finding: Why it ended. The fault handler was told of it.
        handling: The fault handler, which has decided about the devices.
        record: Whether the job was tried again is noted there.
        say: Takes a sentence for people.
    """
    step, device = finding.event.step, finding.device
    if device in handling.devices.out:
        return None
    if finding.kind == "persistent" and handling.breaker_is_open():
        return End(
            NOT_A_DEVICE,
            f"step {step}: {finding.reason}, but the circuit breaker is open, so device {device} is not left out; "
            "see `asd handler --reset-breaker`.",
        )
    if finding.kind == "transient":
        say(f"step {step}: {finding.reason}: a strike for device {device}, which goes on.")
        return None
    repeated = handling.repeated(finding.event) if finding.kind == "suspect" else ""
    if finding.kind == "suspect" and not repeated:
        say(f"step {step}: device {device} is under suspicion: {finding.reason}.")
    if finding.kind in ("persistent", "suspect") and not repeated:  # a persistent one may have been given back by hand
        return None
    what = "nobody can be named" if finding.kind == "unclear" else "software or data"
    sentence = f"step {step}: {what}, no device is left out: {repeated or finding.reason}"
    if repeated or record.tried_again:
        return End(NOT_A_DEVICE, f"{sentence}; another attempt would meet the same.")
    record.tried_again = True
    say(f"{sentence}; it is tried once more.")
    return None
