"""Defaults of `ASD_PROTECTION`, the one switch, for settings that the user did not set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PROTECTIONS: Final = ("full", "document")
_DETECTORS = ("state", "checksum")
_SHARE_MADE_AGAIN = 0.01


def brought_by(protection: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of `Config` that a protection sets; fields in `given` are the user's and left out.

    `full` leaves out parts that do not fit the user's other settings: another rule has no detectors and no suspicions,
    and without refusals no step is re-run.

    >>> brought_by("full", {"on_anomaly": "log"})
    {'rule': 'adaptive', 'detectors': ('state', 'checksum'), 'replay': False, 'manifest': True, \
'confirm': 0.0}
    """
    full = protection == "full"
    rule = given.get("rule", "adaptive" if full else "threshold")
    brought = {"rule": rule}
    if full and rule == "adaptive":
        brought["detectors"] = _DETECTORS
    refuses = given.get("on_anomaly") != "log"
    looks_again = full and refuses and rule == "adaptive"
    brought |= {
        "replay": full and refuses,
        "manifest": full,
        "confirm": _SHARE_MADE_AGAIN if looks_again else 0.0,
    }
    return {field: value for field, value in brought.items() if field not in given}
