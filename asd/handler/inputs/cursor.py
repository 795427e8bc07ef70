"""Protocol between an agent and a reader of its journal: the position, and the size of an answer."""

import re

CURSOR = re.compile(r"(?P<name>[0-9a-f]{32})\.(?P<number>[0-9]{1,18})", re.ASCII)
"""Form of a whole cursor: the journal's name, a dot, and the number of an event."""

CURSOR_HEADER = "X-ASD-Cursor"  # header of an answer: the next position

CLOCK_HEADER = "X-ASD-Clock"  # header with the time of the agent's clock, in seconds since the epoch

FLEET_HEADER = "X-ASD-Fleet"
"""Header with the devices on which a training goes on: the JSON of a list of `asd.handler.db.fleet.Used`."""

MOST_EVENT_BYTES = 1 << 16
MOST_ANSWER_BYTES = 1 << 20
