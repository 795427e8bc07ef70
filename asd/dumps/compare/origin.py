"""The calls of a comparison as a graph: what each was given, and which call gave it."""

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from asd.dumps.compare.asked import Asked
from asd.dumps.compare.comparison import CallRows, ComparedRow
from asd.dumps.compare.matching import fingerprint, forward_of
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Slot, split_name

Agrees = Callable[[ComparedRow], "bool | None"]
"""Function that returns whether both sides of a row agree; None when that is not known."""


class CallGraph:
    """All calls of a comparison, in the order of execution.

    Args:
        trusted: The trusted run.
        calls: Its calls beside those of the run under test.
    """

    def __init__(self, trusted: Dump, calls: Sequence[CallRows]) -> None:
        self._trusted, self.calls = trusted, calls
        self._by_trusted: dict[str, int] = {}  # places of calls by their names
        self._of_module: dict[tuple[str, str], list[CallRows]] | None = None
        self._place: dict[str, int] = {}
        for place, call in enumerate(calls):
            if call.trusted is not None:
                self._by_trusted[call.trusted_name] = place
            if call.trusted is None or call.name != call.trusted_name:
                self._place[call.name] = place
        self._inside: dict[str, list[CallRows]] = {}
        for name, parent in trusted.parents.items():
            if parent is not None and name in self._by_trusted:
                self._inside.setdefault(parent, []).append(calls[self._by_trusted[name]])
        entries = (call.trusted for call in calls if call.trusted is not None)
        slots = ((entry.name, slot) for entry in entries for slot in entry.slots)
        weights = [
            (fingerprint(slot), f"{slot.suffix} of {split_name(name)[0]}")
            for name, slot in slots
            if slot.state == "parameters"
        ]
        self._parameters = {known: words for known, words in reversed(weights) if known is not None}
        self._given = self._outputs(lambda row: row.tested), self._outputs(lambda row: row.trusted)

    def _outputs(self, side: Callable[[ComparedRow], Slot | None]) -> tuple[Any, Any]:
        """Returns the fingerprints of one side's outputs in rising order, and the places of their calls."""
        prints, places = array("q"), array("q")
        for place, call in enumerate(self.calls):
            for known in (fingerprint(side(row)) for row in call.rows if row.state == "output"):
                if known is not None:
                    prints.append(known)
                    places.append(place)
        found = np.frombuffer(prints, np.int64)
        order = np.argsort(found, kind="stable")
        return found[order], np.frombuffer(places, np.int64)[order]

    def _givers(self, slot: Slot | None, side: int = 1) -> list[CallRows]:
        """Returns the calls that gave a tensor in the run under test (0) or in the trusted run (1)."""
        known, (prints, places) = fingerprint(slot), self._given[side]
        if known is None:
            return []
        first, last = np.searchsorted(prints, known, "left"), np.searchsorted(prints, known, "right")
        return [self.calls[place] for place in places[first:last]]

    def first(self, agrees: Agrees) -> CallRows | None:
        """Returns the first call with a row that does not agree."""
        return next((call for call in self.calls if any(agrees(row) is False for row in call.rows)), None)

    def taken(self, call: CallRows) -> list[ComparedRow]:
        """Returns the operands of a call; for the gradients of parameters, the inputs of the module's calls."""
        base, direction, _ = split_name(call.name)
        if direction != "parameters_grad":
            return [row for row in call.rows if row.state in ("input", "parameters")]
        if self._of_module is None:
            self._of_module = {}
            for one in self.calls:
                if one.name.startswith(("Cell.", "Module.")):
                    self._of_module.setdefault(split_name(one.name)[:2], []).append(one)
        calls = [*self._of_module.get((base, "backward"), ()), *self._of_module.get((base, "forward"), ())]
        return [row for one in calls for row in one.rows if row.state == "input"]

    def beside(self, call: CallRows) -> list[ComparedRow]:
        """Returns the operands of a call and the outputs of calls inside a module: float32 may be computed in float16.

        For a backward call, the rows of its forward call are added.
        """
        inside = [row for one in self._inside.get(call.trusted_name, ()) for row in one.rows if row.state == "output"]
        return [*self.taken(call), *inside, *self.forward_rows(call)]

    def forward_rows(self, call: CallRows) -> list[ComparedRow]:
        """Returns all rows of a backward call's forward call; for another call nothing."""
        forward = self.forward_of(call)
        return [] if forward is None or forward is call else list(forward.rows)

    def forward_of(self, call: CallRows) -> CallRows | None:
        """Returns the forward call of a call: itself if it is one, None if the dump has none."""
        place = (self._place if call.trusted is None else self._by_trusted).get(forward_of(call.trusted_name))
        return None if place is None else self.calls[place]

    def _place_of(self, call: CallRows) -> int:
        is_alike = call.trusted is not None and call.name == call.trusted_name
        return (self._by_trusted if is_alike else self._place)[call.name]

    def around(self, call: CallRows) -> Iterator[CallRows]:
        """Returns the modules around a call, the innermost first."""
        seen: set[str] = set()
        name = self._trusted.parents.get(call.trusted_name)
        while name is not None and name not in seen:
            seen.add(name)
            if name in self._by_trusted:
                yield self.calls[self._by_trusted[name]]
            name = self._trusted.parents.get(name)

    def origin(self, first: CallRows, agrees: Agrees) -> CallRows:
        """Returns the call where the error in `first` began, by following wrong inputs back to their source."""
        call, seen = first, {id(first)}
        while (above := self._above(call, agrees)) is not None and id(above) not in seen:
            call = above
            seen.add(id(call))
        return call

    def rewired(self, call: CallRows) -> Asked | None:
        """Returns an input that comes from different calls in the two runs, or None."""
        for row in call.rows:
            if row.state == "input" and row.same is False:
                ours, theirs = (
                    self._before(call, self._givers(slot, side)) for side, slot in enumerate((row.tested, row.trusted))
                )
                if ours and theirs and not {id(one) for one in ours} & {id(one) for one in theirs}:
                    reason = f"{ours[-1].name} gives it, and in the trusted run {theirs[-1].trusted_name}"
                    return Asked("structure", row, reason)
        return None

    def blame(self, call: CallRows, wrong: Sequence[ComparedRow], agrees: Agrees) -> tuple[str, ComparedRow, str]:
        """Returns what a call was given that differs: `weight`, `batch` or `rows`, the row, and why in words.

        Args:
            call: It.
            wrong: Its inputs and parameters that differ, at least one.
            agrees: Whether both sides of a row agree.
        """
        for row in wrong:
            if row.state == "parameters":
                return "weight", row, f"{suffix_of(call, row)} differs"
            if whose := self._weight(row.trusted):
                return "weight", row, f"{suffix_of(call, row)} is {whose}, and it differs"
        row = wrong[0]
        for one in self._before(call, self._givers(row.trusted)):
            if any(agrees(other) and fingerprint(other.trusted) == fingerprint(row.trusted) for other in one.rows):
                why = f"{suffix_of(call, row)} was right when {one.name} gave it, and differs where it is taken"
                return "rows", row, f"{why}: memory, or an operation that the dump does not hold, changed it"
        if self._is_data(call, row):
            return "batch", row, f"no call gave it; {suffix_of(call, row)} differs"
        why = "no call in the dump gave it, so it is data, or of an operation that the dump does not hold"
        return "rows", row, f"{why}; {suffix_of(call, row)} differs"

    def _weight(self, slot: Slot | None) -> str | None:
        if slot is not None and slot.parameter is not None:
            return f"the weight {slot.parameter}"
        known = fingerprint(slot)
        return None if known is None else self._parameters.get(known)

    def _is_data(self, call: CallRows, row: ComparedRow) -> bool:
        """Returns whether an input is the network's own: of an outermost module, or before all that is computed."""
        if split_name(call.name)[1] != "forward" or row.trusted is None:
            return False
        earlier = any(other.state == "output" for one in self.calls[: self._place_of(call)] for other in one.rows)
        if not earlier or row.trusted.kind.startswith(("int", "uint", "bool")):
            return True
        outermost = list(self.around(call))[-1:] or [call] * call.name.startswith(("Cell.", "Module."))
        taken = [other.trusted for one in outermost for other in one.rows if other.state == "input"]
        return row.trusted in taken or fingerprint(row.trusted) in {fingerprint(slot) for slot in taken} - {None}

    def _before(self, call: CallRows, givers: Sequence[CallRows]) -> list[CallRows]:
        """Returns the `givers` before a call; a forward call gets nothing from the backward pass."""
        is_forward, place = split_name(call.name)[1] == "forward", self._place_of(call)
        return [
            one
            for one in givers
            if self._place_of(one) < place and (not is_forward or split_name(one.name)[1] == "forward")
        ]

    def _above(self, call: CallRows, agrees: Agrees) -> CallRows | None:
        """Returns the call that produced the wrong input of this one; the module around it where none did."""
        wrong = [row for row in self.taken(call) if agrees(row) is False]
        if not wrong or any(row.state == "parameters" or self._weight(row.trusted) for row in wrong):
            return None
        is_forward = split_name(call.name)[1] == "forward"
        for row in wrong:
            givers = self._givers(row.trusted)
            for giver in self._before(call, givers) if is_forward else givers:  # a file may list gradients in any order
                gave = any(other.state == "output" and _prints(other) == _prints(row) for other in giver.rows)
                if giver is not call and gave:
                    return giver
        around = next(self.around(call), None)
        if around is None or all(row.trusted is not None and row.trusted.scalar is not None for row in wrong):
            return None
        return around if self._explains(around, wrong, agrees) else None

    def _explains(self, around: CallRows, wrong: list[ComparedRow], agrees: Agrees) -> bool:
        """Returns whether a module has wrong inputs or parameters besides those that its inner call was given."""
        taken = [row for row in self.taken(around) if agrees(row) is not None]
        if any(agrees(row) is False for row in taken):
            prints = {fingerprint(row.trusted) for row in wrong}
            return any(agrees(row) is False and fingerprint(row.trusted) not in prints for row in taken)
        return bool(taken) and any(agrees(row) is False for row in around.rows)


def _prints(row: ComparedRow) -> tuple[object, object]:
    return fingerprint(row.trusted), fingerprint(row.tested)


def suffix_of(call: CallRows, row: ComparedRow) -> str:
    """Returns the name of a row within its call."""
    return row.name.removeprefix(f"{call.name}.")
