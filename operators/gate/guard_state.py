"""State of one guard in a `Table`: the Parameters that its gate in a compiled graph reads, and its counts."""

from __future__ import annotations

from collections.abc import Collection

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from asd.operators.gate.gate import Gate

OFF, ON, REPLAY = 0, 1, 2
"""Modes of a gate; in `REPLAY`, a rerun, it refuses every update and counts none."""
_MOST_UNREAD = 10
"""Unread updates after which the gate's listener is called."""


def new_parameter(name: str, value: float, size: int) -> Parameter:
    """Returns a float32 Parameter that is in no list of weights."""
    return Parameter(Tensor(np.full(size, value, np.float32)), name=f"asd_{name}", requires_grad=False)


def write(to: Parameter, array: np.ndarray) -> None:
    """Writes numbers into a Parameter."""
    # Not set_data: a compiled graph goes on writing to the old memory, and the host would read the new one for ever.
    to.copy_(Tensor(array))


class GuardState:
    """State of one guard.

    Attributes:
        number: Number of the guard, below `Table.GUARDS`.
        gate: Gate that the guard belongs to.
        judged: float32 of the shape of the table's `worst`, 1 where its gate has a limit; the others are left out.
        armed: float32 of shape (1,), `OFF`, `ON` or `REPLAY`.
        counts: float32 of shape (2,): refused updates and all updates, as compiled graphs count them.
        peers: float32 of shape (`Table.GUARDS`,), 1 for the other guards of its gate.
        is_alone: Whether its gate has no other guard.
        mode: Value in `armed`.
    """

    def __init__(self, capacity: int, guards: int, number: int, gate: Gate) -> None:
        self.number, self.gate = number, gate
        self.judged = new_parameter("judged", 0.0, capacity)
        self.armed = new_parameter("armed", 0.0, 1)
        self.counts = new_parameter("counts", 0.0, 2)
        self.peers, self.is_alone = new_parameter("peers", 0.0, guards), True
        self.mode = OFF
        self.refused_by_python = self.updates_by_python = 0
        self._at_read = 0
        self._unread_by_python = 0
        self._last = np.zeros(2, np.float32)
        self._peers: set[int] = set()

    def judge(self, gates: np.ndarray) -> None:
        """Selects the slots that the guard's gate judges."""
        write(self.judged, (gates == self.gate.number).astype(np.float32))

    def arm(self, mode: int) -> None:
        """Sets the mode: `OFF`, `ON` or `REPLAY`."""
        if mode != self.mode:
            self.mode = mode
            write(self.armed, np.full(1, mode, np.float32))

    def share(self, peers: Collection[int]) -> None:
        """Sets the numbers of the other guards of its gate."""
        if set(peers) != self._peers:
            self._peers, self.is_alone = set(peers), not peers
            write(self.peers, np.isin(np.arange(self.peers.size), list(peers)).astype(np.float32))

    @property
    def is_read_by_python(self) -> bool:
        """Returns whether Python alone made the updates since the last read, so that all values were read for them."""
        return self._unread_by_python > 0 and ms.get_context("mode") == ms.PYNATIVE_MODE

    def _counted(self) -> np.ndarray:
        if not self.is_read_by_python:  # else nothing is read from the device for it
            self._last = self.counts.asnumpy().copy()
        return self._last

    def refused(self) -> int:
        """Returns the number of updates refused so far."""
        return int(self._counted()[0]) + self.refused_by_python

    def unread(self) -> int:
        """Returns the number of updates judged since the last read."""
        return int(self._counted()[1]) + self.updates_by_python - self._at_read

    def have_read(self) -> None:
        """Notes that the host has read the table."""
        self._at_read = int(self._last[1]) + self.updates_by_python
        self._unread_by_python = 0

    def saw_update(self, *, refused: bool) -> None:
        """Counts an update that Python asked for, after the gate has judged it."""
        if self.mode == REPLAY:
            return
        self.updates_by_python += 1
        self.refused_by_python += refused
        self._unread_by_python += 1
        if self._unread_by_python == _MOST_UNREAD and self.gate.listener is not None:
            self.gate.listener()
