"""Trust in logs by their owners: content can be forged, an owner cannot."""

import os
from collections.abc import Iterable
from pathlib import Path


def strangers(logs: Iterable[Path]) -> dict[str, str]:
    """Returns the paths of logs that are not trusted, each with the reason.

    A log is trusted when it belongs to the owner of its folder, to root, or to the user of this process. In a folder of
    root, such as a volume, all logs are.
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
    """Returns whether a log may report a released device, which clears its strikes.

    A training never reports that, and could hide a device this way. Root and the user of this process are trusted.
    """
    try:
        return log.stat().st_uid in (0, os.geteuid())
    except OSError:
        return False
