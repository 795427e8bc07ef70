"""The one answer: where two runs part first, in the order of execution, and what that says about the cause.

A call whose inputs agree and whose output differs computed wrongly. A call whose input differs was given something
wrong: the call that gave the same tensor is looked at in its place, else the module around it.
"""

from __future__ import annotations

from dataclasses import replace

from asd.dumps.compare.calls import CallRows
from asd.dumps.compare.divergence import Divergence, counted
from asd.dumps.compare.rounding import Agrees, hidden_and_seen, pair_of, within_rounding
from asd.dumps.compare.rows import BAD, UNMATCHED, ComparedRow
from asd.dumps.compare.wrong_inputs import WrongInputs, fingerprint, suffix_of, trusted_name
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import split_name

__all__ = ["FirstDivergence"]

_COMMUNICATION = ("Distributed.", "MintDistributed.")
_COMMUNICATION_WORDS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "all_reduce", "all_gather")
_LITTLE = 0.03  # of a tensor's size: no two kinds of devices round a first difference by more
_BASES = {"bits": "bit for bit", "crc": "by CRC32", "statistics": "in their statistics", "value": "in value"}


class FirstDivergence:
    """Follows a comparison and keeps what is needed to say where the runs part.

    Args:
        trusted: The trusted run.
        same_bits: Whether equal bits can be expected: both runs are of one framework and tool.
        by: `bits`, `rule`, `rounding`, or `auto`: bits where equal bits can be expected, unless the runs differ
            everywhere by a little, as two kinds of devices do: then the rule of accuracy. Else what rounding explains.

        carried: The most that was taken for rounding in the step before.

    Attributes:
        rounding: What was taken for rounding, in words; empty when nothing was.
        carried: The most that was, for the next step.
    """

    def __init__(self, trusted: Dump, *, same_bits: bool, by: str = "auto", carried: float = 0.0) -> None:
        self._trusted, self._same_bits, self._by = trusted, same_bits, by
        self._wrong_inputs = WrongInputs(trusted)
        self.rounding, self.carried = "", carried
        self._calls: list[CallRows] = []
        self._by_trusted: dict[str, CallRows] = {}
        self._of_module: dict[tuple[str, str], list[CallRows]] = {}
        self._inside: dict[str, list[CallRows]] | None = None

    def add(self, call: CallRows) -> None:
        """Takes in the next call, in the order of execution."""
        self._calls.append(call)
        self._by_trusted.setdefault(trusted_name(call), call)
        base, direction, _ = split_name(call.name)
        self._of_module.setdefault((base, direction), []).append(call)

    def result(self) -> Divergence | None:
        """Where the runs part; None when they agree in everything that could be compared."""
        by_rule = self._by == "rule" or (self._by == "auto" and self._same_bits and self._is_wide())
        by_rounding = self._by == "rounding" or (self._by == "auto" and not self._same_bits)
        if by_rounding:
            calls = ((call, self._beside(call)) for call in self._calls)
            agrees, self.rounding, self.carried = within_rounding(calls, self.carried)
        else:
            agrees = _passes if by_rule else _same
        agrees, unread = self._without_unread(agrees)
        first = self._first(agrees)
        if first is None:
            return None
        call = self._origin_of(first, agrees)
        agreeing = 0
        for each in self._calls:
            if each is first:
                break
            agreeing += any(agrees(row) for row in each.rows)
        found = self._judge(call, agreeing, agrees, by_rule=by_rule or by_rounding)
        if by_rule and self._by == "auto" and found.kind in ("operator", "communication"):
            found = self._unless_given(found)
        if by_rounding:
            found = replace(found, basis="rounding", reason=f"{found.reason}; {self.rounding}")
        forward = call.name.replace("backward", "forward", 1)
        left = next((row for row in unread if found.kind == "operator" and row.name.startswith(f"{forward}.")), None)
        if left is not None and forward != call.name:
            reason = f"{found.reason}; but {left.name} differs too, which this call alone may have taken"
            found = replace(found, kind="unknown", confidence="low", reason=reason)
        return self._unless_hidden(found, call, agrees)

    def _without_unread(self, agrees: Agrees) -> tuple[Agrees, list[ComparedRow]]:
        """Leaves out further outputs of operators that nothing takes: a kernel need not write what nobody reads."""
        wrong = [(call, row) for call in self._calls for row in call.rows if agrees(row) is False]
        taken = {pair_of(row) for call, row in wrong if row.state != "output" or not call.name.startswith("Primitive.")}
        unread = [
            row
            for call, row in wrong
            if row.state == "output"
            and call.name.startswith("Primitive.")
            and pair_of(row) not in taken
            and row.name.rpartition(".")[2] != "0"
            and call.name.endswith("forward")
            and any(agrees(other) for other in call.rows if other.state == "output")
        ]
        if unread:
            told = f"{unread[0].name} differs, which nothing in the dump takes"
            self.rounding = f"{self.rounding}; {told}" if self.rounding else told
        places = {id(row) for row in unread}
        return (lambda row: None if id(row) in places else agrees(row)), unread

    def _unless_given(self, found: Divergence) -> Divergence:
        """Nobody is named for what the rule takes as wrong where the runs began with other weights or data."""
        first = self._first(_same)
        rows = self._taken(first) if first is not None else []
        given = next((row for row in rows if row.same is False), None)
        if given is None:
            return found
        reason = f"{found.reason}; but {given.name} differs a little already, which may have become this"
        return replace(found, kind="unknown", confidence="low", reason=reason)

    def _unless_hidden(self, found: Divergence, call: CallRows, agrees: Agrees) -> Divergence:
        """Nobody is named where the summaries hide as much as the difference that is seen."""
        wrong = [row for row in call.rows if agrees(row) is False]
        if found.basis != "statistics" or found.kind not in ("operator", "communication"):
            return found
        limit, seen = hidden_and_seen([*self._taken(call), *call.rows], wrong)
        if seen > limit:
            return found
        reason = (
            f"{found.reason}, by {seen:.2g} of its size; statistics hide up to {limit:.2g}, so an earlier call may be "
            "the wrong one: dump tensors or CRC32s (summary_mode md5) to tell"
        )
        return replace(found, kind="unknown", confidence="low", reason=reason)

    def _beside(self, call: CallRows) -> list[ComparedRow]:
        """What a call computed from; of a backward call what its forward call took and gave as well."""
        taken = [*self._taken(call), *self._given_inside(call)]
        forward = self._by_trusted.get(trusted_name(call).replace("backward", "forward", 1))
        if split_name(call.name)[1] != "backward" or forward is None:
            return taken
        return taken + [row for row in forward.rows if row.state in ("input", "output")]

    def _given_inside(self, call: CallRows) -> list[ComparedRow]:
        """What the calls inside a module gave: a module of float32 may compute in float16."""
        if self._inside is None:
            self._inside = {}
            for name, parent in self._trusted.parents.items():
                if parent is not None and name in self._by_trusted:
                    self._inside.setdefault(parent, []).append(self._by_trusted[name])
        return [row for one in self._inside.get(trusted_name(call), ()) for row in one.rows if row.state == "output"]

    def _first(self, agrees: Agrees) -> CallRows | None:
        return next((call for call in self._calls if any(agrees(row) is False for row in call.rows)), None)

    def _origin_of(self, first: CallRows, agrees: Agrees) -> CallRows:
        """The call where what `first` shows began: what it was given is followed back to who gave it."""
        order = {id(call): place for place, call in enumerate(self._calls)}
        parameters = self._wrong_inputs.places(trusted_name(first))[0]
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
        return min(ends, key=lambda call: order[id(call)], default=first)

    def _upstream(
        self, call: CallRows, agrees: Agrees, parameters: dict[object, str], given: dict[object, list[CallRows]]
    ) -> list[CallRows]:
        """The calls that gave what this one was given wrong; the module around it where nobody did."""
        wrong = [row for row in self._taken(call) if agrees(row) is False]
        if not wrong or any(row.state == "parameters" or fingerprint(row.trusted) in parameters for row in wrong):
            return []
        found = [
            giver
            for row in wrong
            for giver in given.get((fingerprint(row.trusted), fingerprint(row.tested)), ())
            if _may_follow(giver.name, call.name)
        ]
        if found or all(row.trusted is not None and row.trusted.scalar is not None for row in wrong):
            return found
        around = self._by_trusted.get(self._trusted.parents.get(trusted_name(call)) or "")
        return [around] if around is not None and self._explains(around, wrong, agrees) else []

    def _explains(self, around: CallRows, wrong: list[ComparedRow], agrees: Agrees) -> bool:
        """Whether a module has wrong inputs or parameters of its own that are not merely what its part was given."""
        taken = [row for row in self._taken(around) if agrees(row) is not None]
        if any(agrees(row) is False for row in taken):
            prints = {fingerprint(row.trusted) for row in wrong}
            return any(agrees(row) is False and fingerprint(row.trusted) not in prints for row in taken)
        return bool(taken) and any(agrees(row) is False for row in around.rows)

    def _given(self, agrees: Agrees) -> dict[object, list[CallRows]]:
        """Calls with wrong outputs, by the fingerprints of these on both sides."""
        given: dict[object, list[CallRows]] = {}
        for call in self._calls:
            for row in call.rows:
                key = (fingerprint(row.trusted), fingerprint(row.tested))
                if row.state == "output" and agrees(row) is False and None not in key:
                    given.setdefault(key, []).append(call)
        return given

    def _taken(self, call: CallRows) -> list[ComparedRow]:
        """What a call computed from; of the gradients of parameters, what the module's calls were given."""
        base, direction, _ = split_name(call.name)
        if direction != "parameters_grad":
            return [row for row in call.rows if row.state in ("input", "parameters")]
        calls = [*self._of_module.get((base, "backward"), ()), *self._of_module.get((base, "forward"), ())]
        return [row for one in calls for row in one.rows if row.state == "input"]

    def _is_wide(self) -> bool:
        """Whether the first difference is small but nearly everywhere, while something else breaks the rule later."""
        first, broken = self._first(_same), self._first(_passes)
        if first is None or broken is None or broken is first:
            return False
        rows = [row for row in first.rows if row.same is False]
        found = [row.metrics.difference for row in rows if row.metrics is not None and row.metrics.difference]
        everywhere = bool(found) and all(difference.count > difference.size // 2 for difference in found)
        return everywhere and hidden_and_seen(rows, rows)[1] <= _LITTLE

    def _judge(self, call: CallRows, agreeing: int, agrees: Agrees, *, by_rule: bool) -> Divergence:
        taken = self._taken(call)
        wrong_taken = [row for row in taken if agrees(row) is False]
        wrong_given = [row for row in call.rows if row.state in ("output", "parameters_grad") and agrees(row) is False]
        row = (wrong_taken or wrong_given)[0]
        if wrong_taken:
            kind, confidence, reason = self._wrong_inputs.of(call, wrong_taken, agrees)
        else:
            kind = "communication" if _communicates(call.name) else "operator"
            known = [row for row in taken if agrees(row) is not None]
            complete = bool(known) and len(known) == len(taken)
            confidence = "high" if complete and row.basis in ("bits", "crc", "value") and not by_rule else "medium"
            reason = (
                f"its {counted(len(known), 'input')} {'agrees' if len(known) == 1 else 'agree'} "
                f"{'within what is allowed' if by_rule else _BASES[_weakest(known, row)]} and "
                f"{suffix_of(call, row)} differs"
                if known
                else f"{suffix_of(call, row)} differs; its inputs are not known"
            )
        difference = row.metrics.difference if row.metrics is not None else None
        return Divergence(
            call.name,
            trusted_name(call),
            row.name,
            kind,
            confidence,
            "rule" if by_rule else row.basis,
            agreeing,
            reason,
            difference,
        )


def _same(row: ComparedRow) -> bool | None:
    return row.same


def _passes(row: ComparedRow) -> bool | None:
    if row.verdict in ("None", UNMATCHED, ""):
        return None
    return row.verdict not in BAD


def _may_follow(giver: str, taker: str) -> bool:
    """Whether a call can have given another something: a forward call gets nothing from the backward pass."""
    return split_name(taker)[1] != "forward" or split_name(giver)[1] == "forward"


def _communicates(name: str) -> bool:
    low = name.lower()
    return name.startswith(_COMMUNICATION) or any(word in low for word in _COMMUNICATION_WORDS)


def _weakest(known: list[ComparedRow], row: ComparedRow) -> str:
    bases = {one.basis for one in (*known, row)}
    return next(basis for basis in ("statistics", "crc", "bits", "value") if basis in bases)
