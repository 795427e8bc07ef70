"""The calls of a comparison as a graph: what each was given, and which call gave it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from asd.dumps.compare.comparison import CallRows, ComparedRow
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Slot, split_name

Agrees = Callable[[ComparedRow], "bool | None"]
"""Whether both sides of a row agree; None when that can't be told."""


class CallGraph:
    """All calls of a comparison, in the order of execution.

    Args:
        trusted: The trusted run.
        calls: Its calls beside those of the run under test.
    """

    def __init__(self, trusted: Dump, calls: Sequence[CallRows]) -> None:
        self._trusted, self.calls = trusted, calls
        self._by_trusted: dict[str, CallRows] = {}
        self._of_module: dict[tuple[str, str], list[CallRows]] = {}
        for call in calls:
            self._by_trusted.setdefault(trusted_name(call), call)
            self._of_module.setdefault(split_name(call.name)[:2], []).append(call)
        self._inside: dict[str, list[CallRows]] = {}
        for name, parent in trusted.parents.items():
            if parent is not None and name in self._by_trusted:
                self._inside.setdefault(parent, []).append(self._by_trusted[name])
        self._parameters: dict[object, str] = {}
        for name, entry in trusted.entries.items():
            for slot in entry.slots:
                if slot.state == "parameters" and (known := _fingerprint(slot)) is not None:
                    self._parameters.setdefault(known, f"{slot.suffix} of {split_name(name)[0]}")

    def first(self, agrees: Agrees) -> CallRows | None:
        """The first call with a row that does not agree."""
        return next((call for call in self.calls if any(agrees(row) is False for row in call.rows)), None)

    def taken(self, call: CallRows) -> list[ComparedRow]:
        """What a call computed from; of the gradients of parameters, what the module's calls were given."""
        base, direction, _ = split_name(call.name)
        if direction != "parameters_grad":
            return [row for row in call.rows if row.state in ("input", "parameters")]
        calls = [*self._of_module.get((base, "backward"), ()), *self._of_module.get((base, "forward"), ())]
        return [row for one in calls for row in one.rows if row.state == "input"]

    def beside(self, call: CallRows) -> list[ComparedRow]:
        """What a call computed from, and what the calls inside a module gave: float32 may be computed in float16.

        Of a backward call also what its forward call took and gave.
        """
        name = trusted_name(call)
        inside = [row for one in self._inside.get(name, ()) for row in one.rows if row.state == "output"]
        forward = self._by_trusted.get(name.replace("backward", "forward", 1))
        if split_name(call.name)[1] != "backward" or forward is None:
            return [*self.taken(call), *inside]
        return [*self.taken(call), *inside, *(row for row in forward.rows if row.state in ("input", "output"))]

    def origin(self, first: CallRows, agrees: Agrees) -> CallRows:
        """The call where what `first` shows began: what it was given wrong is followed back to who gave it."""
        givers: dict[object, list[CallRows]] = {}
        for call in self.calls:
            for row in call.rows:
                if row.state == "output" and agrees(row) is False:
                    givers.setdefault(_fingerprints(row), []).append(call)
        givers.pop(None, None)
        call, seen = first, {id(first)}
        while (above := self._above(call, agrees, givers)) is not None and id(above) not in seen:
            call = above
            seen.add(id(call))
        return call

    def blame(self, call: CallRows, wrong: Sequence[ComparedRow], agrees: Agrees) -> tuple[str, ComparedRow, str]:
        """What a call was given that differs: `weight` or `given`, the row, and why in words.

        Args:
            call: It.
            wrong: Its inputs and parameters that differ, at least one.
            agrees: Whether both sides of a row agree.
        """
        for row in wrong:
            if row.state == "parameters":
                return "weight", row, f"{suffix_of(call, row)} differs"
            if whose := self._parameters.get(_fingerprint(row.trusted)):
                return "weight", row, f"{suffix_of(call, row)} is {whose}, and it differs"
        row = wrong[0]
        if row.trusted is not None and row.trusted.scalar is not None:
            return "given", row, f"the argument {suffix_of(call, row)} differs"
        why = "no call in the dump gave it, so it is data, or of an operation that the dump does not hold"
        known = _fingerprint(row.trusted)
        for one in self.calls[: self.calls.index(call)]:
            outputs = (other for other in one.rows if other.state == "output" and agrees(other))
            if known is not None and any(_fingerprint(other.trusted) == known for other in outputs):
                why = f"it was right when {one.name} gave it, and was changed since"
        return "given", row, f"{why}; {suffix_of(call, row)} differs"

    def _above(self, call: CallRows, agrees: Agrees, givers: dict[object, list[CallRows]]) -> CallRows | None:
        """The call that gave this one what it was given wrong; the module around it where nobody did."""
        wrong = [row for row in self.taken(call) if agrees(row) is False]
        if not wrong or any(
            row.state == "parameters" or _fingerprint(row.trusted) in self._parameters for row in wrong
        ):
            return None
        is_forward = split_name(call.name)[1] == "forward"
        for giver in (one for row in wrong for one in givers.get(_fingerprints(row), ())):
            # A forward call gets nothing from the backward pass.
            if giver is not call and (not is_forward or split_name(giver.name)[1] == "forward"):
                return giver
        around = self._by_trusted.get(self._trusted.parents.get(trusted_name(call)) or "")
        if around is None or all(row.trusted is not None and row.trusted.scalar is not None for row in wrong):
            return None
        return around if self._explains(around, wrong, agrees) else None

    def _explains(self, around: CallRows, wrong: list[ComparedRow], agrees: Agrees) -> bool:
        """Whether a module has wrong inputs or parameters of its own that are not merely what its part was given."""
        taken = [row for row in self.taken(around) if agrees(row) is not None]
        if any(agrees(row) is False for row in taken):
            prints = {_fingerprint(row.trusted) for row in wrong}
            return any(agrees(row) is False and _fingerprint(row.trusted) not in prints for row in taken)
        return bool(taken) and any(agrees(row) is False for row in around.rows)


def _fingerprint(slot: Slot | None) -> object:
    """What tells a tensor from others; None when it could be many."""
    if slot is None or slot.scalar is not None or slot.values[0] is None or slot.values[0] == slot.values[1]:
        return None
    return slot.shape, slot.md5 or slot.values


def _fingerprints(row: ComparedRow) -> object:
    """Those of both sides; None when one is not known."""
    both = _fingerprint(row.trusted), _fingerprint(row.tested)
    return None if None in both else both


def trusted_name(call: CallRows) -> str:
    """The name of a call in the trusted run, or its own."""
    for row in call.rows:
        if row.trusted is not None:
            return row.trusted_name[: -len(row.trusted.suffix) - 1]
    return call.name


def suffix_of(call: CallRows, row: ComparedRow) -> str:
    """The name of a row within its call."""
    return row.name.removeprefix(f"{call.name}.")
