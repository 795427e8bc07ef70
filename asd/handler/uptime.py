"""How much time really passes, whatever the clock is set to."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["machine_uptime"]

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def machine_uptime() -> tuple[str, float]:
    """Which start of which machine this is, and the seconds since then, sleep included; nobody can set them.

    >>> machine_uptime()[1] <= machine_uptime()[1]
    True
    """
    try:
        boot = _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        boot = "unknown"
    return boot, time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()
