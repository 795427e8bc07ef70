"""What a reader of an agent's journal and the agent agree on: how far it has come, and how much an answer holds."""

from __future__ import annotations

import re

CURSOR = re.compile(r"(?P<name>[0-9a-f]{32})\.(?P<number>[0-9]{1,18})", re.ASCII)
"""The journal's name, a dot, and the number of an event; what is valid, as a whole."""

CURSOR_HEADER = "X-ASD-Cursor"
"""The header of an answer that says where to go on."""

CLOCK_HEADER = "X-ASD-Clock"
"""The header that says what the agent's clock shows, in seconds since the epoch."""

MOST_EVENT_BYTES = 1 << 16
MOST_ANSWER_BYTES = 1 << 20
