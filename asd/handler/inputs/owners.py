"""Whose logs a handler believes: a log says nothing that could not be forged, but whose it is can't be."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def strangers(logs: Iterable[Path]) -> dict[str, str]:
    """The paths of those of `logs` that are not believed, each with why.

    A log is believed when it belongs to the owner of its folder, to root, or to whom this process runs as. In a folder
    of root, as a volume has one, everybody's are.
    """
    found: dict[str, str] = {}
    owners: dict[Path, int] = {}
    for log in logs:
        try:
            if log.parent not in owners:
                owners[log.parent] = log.parent.stat().st_uid
            owner = owners[log.parent]
            user = log.stat().st_uid
        except OSError:
            continue
        if owner and user not in (0, owner, os.geteuid()):
            found[str(log)] = f"it belongs to user {user}, and its folder to user {owner}"
    return found


def may_give_back(log: Path) -> bool:
    """Whether it is believed when a log tells that a device was given back, which takes its strikes off.

    A training never tells that, and could so hide a device. It is believed of root and of whom this process runs as.
    """
    try:
        return log.stat().st_uid in (0, os.geteuid())
    except OSError:
        return False
