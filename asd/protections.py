"""What protects a training, and what was asked for and does not: filled by the parts as they attach, said once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Protections"]

_LOG = logging.getLogger("asd")
_MOST_TOLD = 4
"""Reasons in one line of the log; the status file has all."""


@dataclass
class Protections:
    """Those of one training.

    Attributes:
        missing: What was asked for and is not active, by its setting, with the reasons.
    """

    missing: dict[str, list[str]] = field(default_factory=dict)
    _told: set[tuple[str, str]] = field(default_factory=set, repr=False)

    def lacks(self, setting: str, *reasons: str) -> None:
        """Says that what `setting` asks for is not active, or not everywhere; nothing if there is no reason."""
        known = self.missing.setdefault(setting, []) if reasons else []
        known += [reason for reason in reasons if reason not in known]

    def tell(self) -> None:
        """Logs what was not told yet."""
        for setting, reasons in self.missing.items():
            new = [reason for reason in reasons if (setting, reason) not in self._told]
            self._told |= {(setting, reason) for reason in new}
            if new:
                _LOG.warning("asked for by %s and not active: %s", setting, _some(new))


def _some(reasons: Sequence[str]) -> str:
    more = f"; and {len(reasons) - _MOST_TOLD} more" if len(reasons) > _MOST_TOLD else ""
    return "; ".join(reasons[:_MOST_TOLD]) + more
