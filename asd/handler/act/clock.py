"""Stored times that follow a clock that is set, so that the change affects no decision."""

import time
from collections.abc import Callable
from pathlib import Path

from asd.handler.db.store import Store

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_STEADY_SECONDS = 1.0  # a clock that is no further off than this was not set


def machine_uptime() -> tuple[str, float]:
    """Returns the id of the machine's boot, and the seconds since then, sleep included; they cannot be set."""
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        boot = "unknown"
    return boot, time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def mind_the_clock(store: Store, uptime: Callable[[], tuple[str, float]] | None, now: float) -> None:
    """Moves times stored by a clock that was set, in a transaction: nothing is blocked or released early."""
    if uptime is not None:
        _move_along(store, *uptime(), now)
    if now < store.number("last_now"):
        store.set_meta("ignore_before", min(store.number("ignore_before"), now))
        store.db.execute("UPDATE device SET cleared = ? WHERE cleared > ?", (now, now))
        store.db.execute("UPDATE cases SET last_fault = ? WHERE last_fault > ?", (now, now))
    store.set_meta("last_now", now)


def _move_along(store: Store, boot: str, up: float, now: float) -> None:
    """Moves stored times along with our clock, so that ages are the time that has really passed.

    Time while the machine was down, or while another machine had the store, is unknown and does not count.
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
