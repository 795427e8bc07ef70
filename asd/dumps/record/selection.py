"""Which entries of a step are recorded: the keys `scope` and `list`."""

from __future__ import annotations

from collections.abc import Sequence

from asd.dumps.record.debugger_config import DebuggerConfig

__all__ = ["Selection"]


class Selection:
    """Decides entry by entry, in the order in which a step meets them.

    An entry is inside the scope from the moment the first name is met until the last one is over, both included.

    Args:
        config: Its `scope`, `names` and `level` count.
    """

    def __init__(self, config: DebuggerConfig) -> None:
        self._first, self._last = config.scope or ("", "")
        self._names = config.names
        self._expand = config.level == "mix"
        self.begin()

    def begin(self) -> None:
        """A step begins."""
        self._inside = not self._first
        self._over = False

    def enters(self, name: str, parents: Sequence[str]) -> bool:
        """Whether the entry `name` is recorded; it begins now.

        Args:
            name: Full name of the entry, such as `Cell.layers.0.Dense.forward.0`.
            parents: Names of the entries it runs in.
        """
        if name == self._first:
            self._inside = True
        wanted = self._inside and not self._over
        return wanted and (not self._names or self._named(name, parents))

    def leaves(self, name: str) -> None:
        """The entry `name` is over."""
        if self._last and name == self._last:
            self._over = True

    def _named(self, name: str, parents: Sequence[str]) -> bool:
        among = (name, *parents) if self._expand else (name,)
        return any(part in each for part in self._names for each in among)
