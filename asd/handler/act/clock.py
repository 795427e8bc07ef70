"""What a clock that was set anew does to what was noted by it: nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from asd.handler.db.store import Store

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STEADY_SECONDS = 1.0  # a clock that is no further off than this was not set anew


def machine_uptime() -> tuple[str, float]:
    """Which start of which machine this is, and the seconds since then, sleep included; nobody can set them."""
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        boot = "unknown"
    return boot, time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def mind_the_clock(store: Store, uptime: Callable[[], tuple[str, float]] | None, now: float) -> None:
    """Moves what was noted by a clock that was set, in a transaction: nothing is blocked, or given back early."""
    if uptime is not None:
        _move_along(store, *uptime(), now)
    if now < store.number("last_now"):
        store.set_meta("ignore_before", min(store.number("ignore_before"), now))
        store.db.execute("UPDATE device SET cleared = ? WHERE cleared > ?", (now, now))
        store.db.execute("UPDATE cases SET last_fault = ? WHERE last_fault > ?", (now, now))
    store.set_meta("last_now", now)


def _move_along(store: Store, boot: str, up: float, now: float) -> None:
    """Moves what we noted by our clock along with it, so that the time in between is what has passed, not was told.

    Of the time that a machine was down, or another one had the store, nobody saw how much it was: none is counted.
    """
    known, base = store.meta("boot"), store.number("clock_base")
    jump = now - up - base
    if known != boot:
        jump = max(now - store.number("last_now", now), 0.0) if known else 0.0
    elif abs(jump) <= _STEADY_SECONDS:
        return
    store.set_meta("boot", boot)
    store.set_meta("clock_base", now - up)
    if jump:
        store.db.execute(
            "UPDATE cases SET opened = min(opened + :jump, :now), last_fault = min(last_fault + :jump, :now)",
            {"jump": jump, "now": now},
        )
        store.db.execute("UPDATE device SET tested = min(tested + ?, ?) WHERE tested > 0", (jump, now))
        opened = store.number("breaker_opened")
        if opened:
            store.set_meta("breaker_opened", min(opened + jump, now))
