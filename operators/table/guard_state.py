"""What one guard has in a `Table`: the Parameters that its gate in a compiled graph reads and writes."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from mindspore import Parameter, Tensor

from asd.operators.table.gate import Gate
from asd.operators.table.message import ANNOUNCEMENT
from asd.rules.readings.features import FEATURES

__all__ = ["OFF", "ON", "REPLAY", "GuardState", "new_parameter", "write"]

OFF, ON, REPLAY = 0, 1, 2
"""What a gate does: in a replay it refuses every update, uncounted."""
_MOST_UNREAD = 10
"""Updates after which somebody should have read."""


def new_parameter(name: str, value: float, size: int) -> Parameter:
    """A float32 Parameter that is in no list of weights."""
    return Parameter(Tensor(np.full(size, value, np.float32)), name=f"asd_{name}", requires_grad=False)


def write(to: Parameter, array: np.ndarray) -> None:
    """Gives a Parameter other numbers."""
    # Not set_data: a compiled graph goes on writing to the old memory, and the host would read the new one for ever.
    to.copy_(Tensor(array))


class GuardState:
    """The Parameters of one guard.

    Attributes:
        number: Which guard it is, below `Table.GUARDS`.
        gate: Whose it is.
        judged: float32 of the shape of the table's `worst`, 1 where its gate has a limit; the others are left out.
        counting: The same of the shape of its `tallies`.
        armed: float32 of shape (1,), `OFF`, `ON` or `REPLAY`.
        counts: float32 of shape (2,): updates refused, and all of them.
        message: float32 of shape (width,), what goes over the ranks with the next update besides the verdict: in its
            first number an announcement, if this rank has one.
        sums: Of that shape, the sum of the last messages that said anything.
        announcements: float32 of shape (1,), which grows when any rank did.
        peers: float32 of shape (`Table.GUARDS`,), 1 for the other guards of its gate.
        is_alone: Whether there are none.
        updates: How many were made since the host last read, in PyNative.
    """

    def __init__(self, capacity: int, guards: int, number: int, gate: Gate, width: int = 1) -> None:
        self.number, self.gate = number, gate
        self.judged = new_parameter("judged", 0.0, len(FEATURES) * capacity)
        self.counting = new_parameter("counting", 0.0, 2 * capacity)
        self.armed, self.announcements = (new_parameter(name, 0.0, 1) for name in ("armed", "announcements"))
        self.message, self.sums = (new_parameter(name, 0.0, width) for name in ("message", "sums"))
        self._message = np.zeros(width, np.float32)
        self.counts = new_parameter("counts", 0.0, 2)
        self.peers, self.is_alone = new_parameter("peers", 0.0, guards), True
        self.updates = 0
        self._at_read, self._last = 0, np.zeros(2, np.float32)
        self._announced_at: int | None = None
        self._mode = OFF
        self._peers: set[int] = set()

    def judge(self, gates: np.ndarray) -> None:
        """Says which gate judges each slot."""
        own = (gates == self.gate.number).astype(np.float32)
        for parameter in (self.judged, self.counting):
            write(parameter, np.tile(own, parameter.size // own.size))

    def arm(self, mode: int) -> None:
        """Says what it does from now on."""
        if mode != self._mode:
            self._mode = mode
            write(self.armed, np.full(1, mode, np.float32))

    def share(self, peers: Collection[int]) -> None:
        """Says which other guards its gate has."""
        if set(peers) != self._peers:
            self._peers, self.is_alone = set(peers), not peers
            write(self.peers, np.isin(np.arange(self.peers.size), list(peers)).astype(np.float32))

    def refused(self) -> int:
        """Updates refused so far."""
        self._last = self.counts.asnumpy().copy()
        return int(self._last[0])

    def unread(self) -> int:
        """Updates judged since the host last read."""
        return int(self.counts.asnumpy()[1]) - self._at_read

    def have_read(self) -> None:
        """Says that the host has read, right after it asked for `refused`."""
        self._at_read = int(self._last[1])
        self.updates = 0

    def saw_update(self) -> None:
        """Is told of each update in PyNative, when the gate has judged it."""
        if self._mode == REPLAY:
            return
        self.updates += 1
        if self.updates == _MOST_UNREAD and self.gate.listener is not None:
            self.gate.listener()

    def announce(self) -> None:
        """Tells all ranks something with the next update."""
        if self._announced_at is None:
            self._announced_at = int(self.announcements.asnumpy()[0])
            self._message[0] = ANNOUNCEMENT
            write(self.message, self._message)

    def announced(self) -> int:
        """A number that grows when any rank has announced something."""
        count = int(self.announcements.asnumpy()[0])
        if self._announced_at is not None and count > self._announced_at:
            self._announced_at = None
            self._message[0] = 0
            write(self.message, self._message)
        return count

    def tell(self, message: np.ndarray) -> None:
        """Tells all ranks something with the next update."""
        self._message[1:] = message[1:]
        write(self.message, self._message)

    def heard(self) -> np.ndarray | None:
        """The sum of what the ranks told; None where nothing was, or no update has been made since."""
        if not self._message[1:].any():  # so that nothing is read from the device
            return None
        sums: np.ndarray = self.sums.asnumpy().copy()
        return sums if sums[1] > 0 else None

    def drop_message(self) -> None:
        """Tells nothing any more, and forgets what was heard."""
        if self._message[1:].any():
            self._message[1:] = 0
            write(self.message, self._message)
            write(self.sums, np.zeros_like(self._message))
