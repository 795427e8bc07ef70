"""How far a reader has come in the journal of an agent: the journal's name, a dot, and the number of an event."""

from __future__ import annotations

import re

__all__ = ["CURSOR", "CURSOR_HEADER"]

CURSOR = re.compile(r"(?P<name>[0-9a-f]{32})\.(?P<number>[0-9]{1,18})", re.ASCII)
"""What is valid, as a whole."""

CURSOR_HEADER = "X-ASD-Cursor"
"""The header of an answer that says where to go on."""
