"""The calls of a comparison as a graph: what each was given, and which call gave it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from asd.dumps.compare.calls import CallRows
from asd.dumps.compare.rows import ComparedRow
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Slot, split_name

__all__ = ["Agrees", "CallGraph", "suffix_of", "trusted_name"]

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
        self._place = {id(call): place for place, call in enumerate(calls)}
        self._by_trusted: dict[str, CallRows] = {}
        self._of_module: dict[tuple[str, str], list[CallRows]] = {}
        for call in calls:
            self._by_trusted.setdefault(trusted_name(call), call)
            self._of_module.setdefault(split_name(call.name)[:2], []).append(call)
        self._inside: dict[str, list[CallRows]] = {}
        for name, parent in trusted.parents.items():
            if parent is not None and name in self._by_trusted:
                self._inside.setdefault(parent, []).append(self._by_trusted[name])

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
        """The call where what `first` shows began: what it was given is followed back to who gave it."""
        parameters = self._parameters()
        given = self._given(agrees)
        seen, to_visit, ends = {id(first)}, [first], []
        while to_visit:
            call = to_visit.pop()
            above = [one for one in self._upstream(call, agrees, parameters, given) if one is not call]
            if not above:
                ends.append(call)
            new = {id(one): one for one in above if id(one) not in seen}
            seen |= set(new)
            to_visit += new.values()
        return min(ends, key=lambda call: self._place[id(call)], default=first)

    def blame(self, call: CallRows, wrong: Sequence[ComparedRow], agrees: Agrees) -> tuple[str, ComparedRow, str]:
        """What a call was given that differs: `weight` or `given`, the row, and why in words.

        Args:
            call: It.
            wrong: Its inputs and parameters that differ, at least one.
            agrees: Whether both sides of a row agree.
        """
        parameters = self._parameters()
        giver = self._givers(call, agrees)
        for row in wrong:
            if row.state == "parameters":
                return "weight", row, f"{suffix_of(call, row)} differs"
            known = _fingerprint(row.trusted)
            if known in parameters:
                return "weight", row, f"{suffix_of(call, row)} is {parameters[known]}, and it differs"
            if known in giver:
                was = f"it was right when {giver[known]} gave it, and was changed since"
                return "given", row, f"{was}; {suffix_of(call, row)} differs"
        row = wrong[0]
        if row.trusted is not None and row.trusted.scalar is not None:
            return "given", row, f"the argument {suffix_of(call, row)} differs"
        why = "no call in the dump gave it, so it is data, or of an operation that the dump does not hold"
        return "given", row, f"{why}; {suffix_of(call, row)} differs"

    def _upstream(
        self, call: CallRows, agrees: Agrees, parameters: dict[object, str], given: dict[object, list[CallRows]]
    ) -> list[CallRows]:
        """The calls that gave what this one was given wrong; the module around it where nobody did."""
        wrong = [row for row in self.taken(call) if agrees(row) is False]
        if not wrong or any(row.state == "parameters" or _fingerprint(row.trusted) in parameters for row in wrong):
            return []
        found = [
            giver
            for row in wrong
            for giver in given.get((_fingerprint(row.trusted), _fingerprint(row.tested)), ())
            if _may_follow(giver.name, call.name)
        ]
        if found or all(row.trusted is not None and row.trusted.scalar is not None for row in wrong):
            return found
        around = self._by_trusted.get(self._trusted.parents.get(trusted_name(call)) or "")
        return [around] if around is not None and self._explains(around, wrong, agrees) else []

    def _explains(self, around: CallRows, wrong: list[ComparedRow], agrees: Agrees) -> bool:
        """Whether a module has wrong inputs or parameters of its own that are not merely what its part was given."""
        taken = [row for row in self.taken(around) if agrees(row) is not None]
        if any(agrees(row) is False for row in taken):
            prints = {_fingerprint(row.trusted) for row in wrong}
            return any(agrees(row) is False and _fingerprint(row.trusted) not in prints for row in taken)
        return bool(taken) and any(agrees(row) is False for row in around.rows)

    def _given(self, agrees: Agrees) -> dict[object, list[CallRows]]:
        """Calls with wrong outputs, by the fingerprints of these on both sides."""
        given: dict[object, list[CallRows]] = {}
        for call in self.calls:
            for row in call.rows:
                key = (_fingerprint(row.trusted), _fingerprint(row.tested))
                if row.state == "output" and agrees(row) is False and None not in key:
                    given.setdefault(key, []).append(call)
        return given

    def _givers(self, until: CallRows, agrees: Agrees) -> dict[object, str]:
        """Who gave what before a call, by fingerprint; only what agreed with its counterpart."""
        found: dict[object, str] = {}
        for call in self.calls[: self._place[id(until)]]:
            rows = (row for row in call.rows if row.state == "output" and agrees(row))
            found.update({_fingerprint(row.trusted): call.name for row in rows})
        found.pop(None, None)
        return found

    def _parameters(self) -> dict[object, str]:
        """The parameters of the trusted run by fingerprint."""
        found: dict[object, str] = {}
        for name, entry in self._trusted.entries.items():
            for slot in entry.slots:
                if slot.state == "parameters":
                    found.setdefault(_fingerprint(slot), f"{slot.suffix} of {split_name(name)[0]}")
        found.pop(None, None)
        return found


def _may_follow(giver: str, taker: str) -> bool:
    """Whether a call can have given another something: a forward call gets nothing from the backward pass."""
    return split_name(taker)[1] != "forward" or split_name(giver)[1] == "forward"


def _fingerprint(slot: Slot | None) -> object:
    """What tells a tensor from others; None when it could be many."""
    if slot is None or slot.scalar is not None or slot.values[0] is None or slot.values[0] == slot.values[1]:
        return None
    return slot.shape, slot.md5 or slot.values


def trusted_name(call: CallRows) -> str:
    """The name of a call in the trusted run, or its own."""
    for row in call.rows:
        if row.trusted is not None:
            return row.trusted_name[: -len(row.trusted.suffix) - 1]
    return call.name


def suffix_of(call: CallRows, row: ComparedRow) -> str:
    """The name of a row within its call."""
    return row.name.removeprefix(f"{call.name}.")
