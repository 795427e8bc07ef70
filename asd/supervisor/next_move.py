"""Decides how a job continues after an attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from asd.supervisor.cause import Cause
from asd.supervisor.own_handler import OwnHandler
from asd.supervisor.record import Record

DONE, FAILED, NO_DEVICE_LEFT, NOT_A_DEVICE, INTERRUPTED, TERMINATED = 0, 1, 16, 17, 130, 143


class End(NamedTuple):
    """End of a job: no further attempt can help."""

    code: int  # the exit code
    reason: str  # reason, in one sentence


def next_move(finding: Cause, handling: OwnHandler, record: Record, say: Callable[[str], None]) -> End | None:
    """Reports what follows from the end of an attempt; returns an end when another attempt cannot help.

    The fault handler has got the events of the finding and has decided; the record notes a further try.
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
    if finding.kind in ("persistent", "suspect") and not repeated:  # a persistent one may have been released by hand
        return None
    what = "nobody can be named" if finding.kind == "unclear" else "software or data"
    sentence = f"step {step}: {what}, no device is left out: {repeated or finding.reason}"
    if repeated or record.tried_again:
        return End(NOT_A_DEVICE, f"{sentence}; another attempt would meet the same.")
    record.tried_again = True
    say(f"{sentence}; it is tried once more.")
    return None
