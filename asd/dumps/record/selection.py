"""Selects the entries of a step that are recorded: the keys `scope` and `list`."""

from collections.abc import Sequence

from asd.dumps.record.debugger_config import DebuggerConfig


class Selection:
    """Decision entry by entry, in the order of a step.

    The scope reaches from the beginning of its first entry to the end of its last, both included. A module around one
    of them is not wholly inside, so it is left out; for the last entry this is known only after the module began.

    Args:
        config: Its `scope`, `names` and `level` count.
    """

    def __init__(self, config: DebuggerConfig) -> None:
        self._ends = config.scope
        self._first, self._last = config.scope or ("", "")
        self._names = config.names
        self._expand = config.level == "mix"
        self._begun = False
        self._over = False
        self._last_in_first = False
        self._around: set[str] = set()  # modules around the first or the last entry
        self._backward: set[str] = set()  # modules whose backward call is inside

    def enters(self, name: str, parents: Sequence[str]) -> bool:
        """Returns whether the entry `name` is recorded, as far as is known when it begins; see `leaves`.

        Args:
            name: Full name of the entry, such as `Cell.layers.0.Dense.forward.0`.
            parents: Names of the entries around it, the outermost first.
        """
        wanted = self._is_inside(name, parents) and self.is_named(name, parents)
        if wanted and ".backward." in name:
            self._backward.add(_module(name))
        return wanted

    def leaves(self, name: str) -> bool:
        """Ends the entry `name`; returns whether its record is kept."""
        if self._ends and name == self._last:
            if not self._begun:
                return False
            self._over = True
        return name not in self._around

    def takes_gradients(self, name: str, parents: Sequence[str]) -> bool:
        """Returns whether gradients of a module's parameters are recorded: only with the module's backward call.

        Args:
            name: Name of the entry, such as `Cell.layers.0.Dense.parameters_grad.0`.
            parents: Names of the backward calls around the module's.
        """
        inside = not self._ends or name.rpartition(".parameters_grad.")[0] in self._backward
        return inside and self.is_named(name, parents)

    def is_named(self, name: str, parents: Sequence[str]) -> bool:
        """Returns whether the key `list` has the entry; arguments as above."""
        among = (name, *parents) if self._expand else (name,)
        return not self._names or any(part in each for part in self._names for each in among)

    def _is_inside(self, name: str, parents: Sequence[str]) -> bool:
        if not self._ends:
            return True
        in_first = self._first in parents
        self._begun = self._begun or name == self._first or in_first
        if name in self._ends:
            self._last_in_first = self._last_in_first or in_first
            new = set(parents) - set(self._ends)
            self._around |= new
            self._backward -= {_module(each) for each in new}
            return True
        # In the backward pass a call inside the first may begin before it, and one inside either may follow the last.
        late = self._last in parents or (in_first and not self._last_in_first)
        return self._begun and (not self._over or late) and name not in self._around


def _module(name: str) -> str:
    return name.rpartition(".backward.")[0]
