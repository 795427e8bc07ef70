"""The gates of a table: a number for each monitor, free again when the monitor is gone."""

from __future__ import annotations

import weakref

from asd.errors import UnsupportedError
from asd.operators.table.gate import Gate


class Gates:
    """The gates of one table.

    Args:
        capacity: How many there can be, the default one included.

    Attributes:
        default: The gate of what no monitor has.
        living: All of them, by number.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.default = Gate(0)
        self.living: weakref.WeakValueDictionary[int, Gate] = weakref.WeakValueDictionary({0: self.default})

    def new(self) -> Gate:
        """One more.

        Raises:
            UnsupportedError: There are too many.
        """
        number = next((i for i in range(self._capacity) if i not in self.living), None)
        if number is None:
            raise UnsupportedError(f"one more training can't be watched: all {self._capacity} gates are in use.")
        return self.living.setdefault(number, Gate(number))

    def others(self, gate: Gate) -> list[Gate]:
        """The gates of other monitors whose training runs, in the order in which they began."""
        return [other for _, other in sorted(self.living.items()) if other is not gate and not other.is_free]
