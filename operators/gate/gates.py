"""Gates of a table: one number per monitor, free again when the monitor no longer exists."""

import weakref

from asd.errors import UnsupportedError
from asd.operators.gate.gate import Gate


class Gates:
    """Gates of one table.

    Args:
        capacity: Largest number of gates, the default one included.

    Attributes:
        default: Gate of all sites that no monitor owns.
        living: All gates, by number.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.default = Gate(0)
        self.living: weakref.WeakValueDictionary[int, Gate] = weakref.WeakValueDictionary({0: self.default})

    def new(self) -> Gate:
        """Returns a new gate; raises UnsupportedError if all numbers are in use."""
        number = next((i for i in range(self._capacity) if i not in self.living), None)
        if number is None:
            raise UnsupportedError(f"one more training can't be watched: all {self._capacity} gates are in use.")
        return self.living.setdefault(number, Gate(number))

    def others(self, gate: Gate) -> list[Gate]:
        """Returns the gates of other monitors whose training runs, by number."""
        return [other for _, other in sorted(self.living.items()) if other is not gate and not other.is_free]
