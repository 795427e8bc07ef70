"""The one answer: where two runs part first, in the order of execution, and what that says about the cause.

A call whose inputs agree and whose output differs computed wrongly. A call whose input differs was given something
wrong: the call that gave the same tensor is looked at in its place, else the module around it. Whether it was data, a
weight, or the result of an operation that the dump does not hold is told from where the same tensor stands elsewhere
in the trusted dump.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from asd.dumps.compare.bits import BitDifference
from asd.dumps.compare.calls import CallRows
from asd.dumps.compare.rows import Row
from asd.dumps.compare.within_rounding import Agrees, hidden_and_seen, pair_of, within_rounding
from asd.dumps.compare.wrong_rows import BAD, UNMATCHED
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Slot, split_name

__all__ = ["Divergence", "FirstDivergence"]

_COMMUNICATION = ("Distributed.", "MintDistributed.")
_COMMUNICATION_WORDS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "all_reduce", "all_gather")
_TAKES_WEIGHT = {
    "linear", "dense", "matmul", "batchmatmul", "conv1d", "conv2d", "conv3d", "embedding", "gather", "layer_norm",
    "layernorm", "rms_norm", "rmsnorm", "group_norm", "batch_norm", "biasadd",
}  # fmt: skip
_LITTLE = 0.03  # of a tensor's size: no two kinds of devices round a first difference by more
_BASES = {"bits": "bit for bit", "crc": "by CRC32", "statistics": "in their statistics", "value": "in value"}


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs part first.

    Attributes:
        call: Name of the call in the run under test.
        trusted_call: Its name in the trusted run.
        slot: Name of the first slot that differs, the one the judgement rests on.
        kind: `operator`, `weight`, `input` or `communication`; `unknown` where the dumps can't tell.
        confidence: `high`, `medium` or `low`.
        basis: What agreement means: `bits`, `crc`, `statistics`, `value`, `rule` for the rule of accuracy, or
            `rounding` for what that explains.
        agreeing: Calls before it, all of which agree.
        reason: Why this kind, in words.
        difference: The elements that differ, when both tensors are at hand.
    """

    call: str
    trusted_call: str
    slot: str
    kind: str
    confidence: str
    basis: str
    agreeing: int
    reason: str
    difference: BitDifference | None

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        lead = {
            "operator": f"The first wrong operator is {self.call}",
            "communication": f"The first wrong communication is {self.call}",
            "weight": f"A weight is wrong before {self.call} uses it",
            "input": f"What {self.call} is given is wrong already",
            "unknown": f"Which operator is the first wrong one can't be told, {self.call} is the first to show it",
        }[self.kind]
        return f"{lead}: {self.reason}{_bits(self.difference)} ({self.kind}, confidence {self.confidence})."


class FirstDivergence:
    """Follows a comparison and keeps what is needed to say where the runs part.

    Args:
        trusted: The trusted run.
        same_bits: Whether equal bits can be expected: both runs are of one framework, tool and mode.
        by: `bits`, `rule`, `rounding`, or `auto`: bits where equal bits can be expected, unless the runs differ
            everywhere by a little, as two kinds of devices do: then the rule of accuracy. Else what rounding explains.

        carried: The most that was taken for rounding in the step before.

    Attributes:
        rounding: What was taken for rounding, in words; empty when nothing was.
        carried: The most that was, for the next step.
    """

    def __init__(self, trusted: Dump, *, same_bits: bool, by: str = "auto", carried: float = 0.0) -> None:
        self._trusted, self._same_bits, self._by = trusted, same_bits, by
        self.rounding, self.carried = "", carried
        self._calls: list[CallRows] = []
        self._by_trusted: dict[str, CallRows] = {}
        self._of_module: dict[tuple[str, str], list[CallRows]] = {}
        self._inside: dict[str, list[CallRows]] | None = None

    def add(self, call: CallRows) -> None:
        """Takes in the next call, in the order of execution."""
        self._calls.append(call)
        self._by_trusted.setdefault(_trusted_name(call), call)
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

    def _without_unread(self, agrees: Agrees) -> tuple[Agrees, list[Row]]:
        """Leaves out further outputs of operators that nothing takes: a kernel need not write what nobody reads."""
        wrong = [(call, row) for call in self._calls for row in call.rows if agrees(row) is False]
        taken = {pair_of(row) for call, row in wrong if row.state != "output" or not call.name.startswith("Primitive.")}
        unread = [
            row for call, row in wrong
            if row.state == "output" and call.name.startswith("Primitive.") and pair_of(row) not in taken
            and row.name.rpartition(".")[2] != "0" and call.name.endswith("forward")
            and any(agrees(other) for other in call.rows if other.state == "output")
        ]  # fmt: skip
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

    def _beside(self, call: CallRows) -> list[Row]:
        """What a call computed from; of a backward call what its forward call took and gave as well."""
        taken = [*self._taken(call), *self._given_inside(call)]
        forward = self._by_trusted.get(_trusted_name(call).replace("backward", "forward", 1))
        if split_name(call.name)[1] != "backward" or forward is None:
            return taken
        return taken + [row for row in forward.rows if row.state in ("input", "output")]

    def _given_inside(self, call: CallRows) -> list[Row]:
        """What the calls inside a module gave: a module of float32 may compute in float16."""
        if self._inside is None:
            self._inside = {}
            for name, parent in self._trusted.parents.items():
                if parent is not None and name in self._by_trusted:
                    self._inside.setdefault(parent, []).append(self._by_trusted[name])
        return [row for one in self._inside.get(_trusted_name(call), ()) for row in one.rows if row.state == "output"]

    def _first(self, agrees: Agrees) -> CallRows | None:
        return next((call for call in self._calls if any(agrees(row) is False for row in call.rows)), None)

    def _origin_of(self, first: CallRows, agrees: Agrees) -> CallRows:
        """The call where what `first` shows began: what it was given is followed back to who gave it."""
        order = {id(call): place for place, call in enumerate(self._calls)}
        parameters = self._places(_trusted_name(first))[0]
        given = self._given(agrees)
        seen, to_visit, ends = {id(first)}, [first], []
        while to_visit:
            call = to_visit.pop()
            above = [
                one for one in self._upstream(call, agrees, parameters, given) if one is not call
            ]  # fmt: skip
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
        if not wrong or any(row.state == "parameters" or _print_of(row.trusted) in parameters for row in wrong):
            return []
        found = [
            giver for row in wrong for giver in given.get((_print_of(row.trusted), _print_of(row.tested)), ())
            if _may_follow(giver.name, call.name)
        ]  # fmt: skip
        if found or all(row.trusted is not None and row.trusted.scalar is not None for row in wrong):
            return found
        around = self._by_trusted.get(self._trusted.parents.get(_trusted_name(call)) or "")
        return [around] if around is not None and self._explains(around, wrong, agrees) else []

    def _explains(self, around: CallRows, wrong: list[Row], agrees: Agrees) -> bool:
        """Whether a module has wrong inputs or parameters of its own that are not merely what its part was given."""
        taken = [row for row in self._taken(around) if agrees(row) is not None]
        if any(agrees(row) is False for row in taken):
            prints = {_print_of(row.trusted) for row in wrong}
            return any(agrees(row) is False and _print_of(row.trusted) not in prints for row in taken)
        return bool(taken) and any(agrees(row) is False for row in around.rows)

    def _given(self, agrees: Agrees) -> dict[object, list[CallRows]]:
        """Calls with wrong outputs, by the fingerprints of these on both sides."""
        given: dict[object, list[CallRows]] = {}
        for call in self._calls:
            for row in call.rows:
                key = (_print_of(row.trusted), _print_of(row.tested))
                if row.state == "output" and agrees(row) is False and None not in key:
                    given.setdefault(key, []).append(call)
        return given

    def _taken(self, call: CallRows) -> list[Row]:
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
            kind, confidence, reason = self._origin(call, wrong_taken, agrees)
        else:
            kind = "communication" if _communicates(call.name) else "operator"
            known = [row for row in taken if agrees(row) is not None]
            complete = bool(known) and len(known) == len(taken)
            confidence = "high" if complete and row.basis in ("bits", "crc", "value") and not by_rule else "medium"
            reason = (
                f"its {_counted(len(known), 'input')} {'agrees' if len(known) == 1 else 'agree'} "
                f"{'within what is allowed' if by_rule else _BASES[_weakest(known, row)]} and "
                f"{_suffix(call, row)} differs"
                if known
                else f"{_suffix(call, row)} differs; its inputs are not known"
            )
        difference = row.metrics.difference if row.metrics is not None else None
        return Divergence(
            call.name, _trusted_name(call), row.name, kind, confidence, "rule" if by_rule else row.basis, agreeing,
            reason, difference,
        )  # fmt: skip

    def _origin(self, call: CallRows, wrong: list[Row], agrees: Agrees) -> tuple[str, str, str]:
        """Kind, confidence and reason of a call that was given something wrong."""
        row = wrong[0]
        what = _suffix(call, row)
        if row.state == "parameters":
            confidence = "high" if row.basis in ("bits", "crc") else "medium"
            return "weight", confidence, f"{what} differs while its inputs agree"
        parameters, producers = self._places(_trusted_name(call))
        for row in (one for one in wrong if one.state == "input"):
            print_ = None if row.trusted is None else _fingerprint(row.trusted)
            what = _suffix(call, row)
            if print_ in parameters:
                return "weight", "high", f"{what} is {parameters[print_]}, and it differs"
            if print_ in producers:
                return "input", "medium", f"{what} was right when {producers[print_]} gave it, and was changed since"
        row = wrong[0]
        what = _suffix(call, row)
        if row.trusted is not None and row.trusted.scalar is not None:
            return "input", "medium", f"the argument {what} differs"
        if _may_be_weight(call.name, row) and any(agrees(other) for other in call.rows if other.state == "input"):
            return "weight", "medium", f"{what} differs, which no call before gave, while the other inputs agree"
        if not self._had_data(_trusted_name(call), parameters):
            confidence = "high" if row.basis in ("bits", "crc") else "medium"
            return "input", confidence, f"{what} of the first call that gets data differs"
        between = f"an operation between {self._last_before(call)} and it that the dump does not hold"
        given = "what the network was given, or " if split_name(call.name)[1] == "forward" else ""
        return "unknown", "low", f"{what} differs and no call in the dump gave it, so {given}{between} is wrong"

    def _had_data(self, name: str, parameters: dict[object, str]) -> bool:
        """Whether a call of its direction comes before, in the trusted run, that gets anything but parameters."""
        direction = split_name(name)[1]
        own = set(parameters)
        for before in self._before(name):
            if split_name(before)[1] != direction:
                continue
            slots = self._trusted.entries[before].slots
            given = {_fingerprint(slot) for slot in slots if slot.state == "input" and slot.scalar is None}
            if direction != "forward" or not given <= {*own, None}:
                return True
            own |= {_fingerprint(slot) for slot in slots if slot.state == "output"}
        return False

    def _before(self, name: str) -> list[str]:
        names = list(self._trusted.entries)
        return names[: names.index(name)] if name in self._trusted.entries else []

    def _last_before(self, call: CallRows) -> str:
        names = self._before(_trusted_name(call))
        return names[-1] if names else "the beginning"

    def _places(self, until: str) -> tuple[dict[object, str], dict[object, str]]:
        """The parameters of the trusted run, and what its calls before `until` gave, by fingerprint."""
        parameters: dict[object, str] = {}
        producers: dict[object, str] = {}
        before = True
        for name, entry in self._trusted.entries.items():
            before = before and name != until
            for slot in entry.slots:
                if slot.state == "parameters":
                    parameters.setdefault(_fingerprint(slot), f"{slot.suffix} of {split_name(name)[0]}")
                elif slot.state == "output" and before:
                    producers[_fingerprint(slot)] = name
        parameters.pop(None, None)
        producers.pop(None, None)
        return parameters, producers


def _same(row: Row) -> bool | None:
    return row.same


def _passes(row: Row) -> bool | None:
    if row.verdict in ("None", UNMATCHED, ""):
        return None
    return row.verdict not in BAD


def _print_of(slot: Slot | None) -> object:
    return None if slot is None else _fingerprint(slot)


def _may_follow(giver: str, taker: str) -> bool:
    """Whether a call can have given another something: a forward call gets nothing from the backward pass."""
    return split_name(taker)[1] != "forward" or split_name(giver)[1] == "forward"


def _fingerprint(slot: Slot) -> object:
    """What tells a tensor from others; None when it could be many."""
    if slot.scalar is not None or slot.values[0] is None or slot.values[0] == slot.values[1]:
        return None
    return slot.shape, slot.md5 or slot.values


def _may_be_weight(name: str, row: Row) -> bool:
    parts = split_name(name)[0].lower().split(".")
    index = (row.tested or row.trusted).suffix.split(".")[1:2]  # type: ignore[union-attr]
    return index != ["0"] and any(part in _TAKES_WEIGHT for part in parts[1:])


def _communicates(name: str) -> bool:
    low = name.lower()
    return name.startswith(_COMMUNICATION) or any(word in low for word in _COMMUNICATION_WORDS)


def _weakest(known: list[Row], row: Row) -> str:
    bases = {one.basis for one in (*known, row)}
    return next(basis for basis in ("statistics", "crc", "bits", "value") if basis in bases)


def _trusted_name(call: CallRows) -> str:
    for row in call.rows:
        if row.trusted is not None:
            return row.trusted_name[: -len(row.trusted.suffix) - 1]
    return call.name


def _suffix(call: CallRows, row: Row) -> str:
    return row.name.removeprefix(call.name).lstrip("._")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _bits(difference: BitDifference | None) -> str:
    if difference is None or not difference.elements:
        return ""
    first = difference.elements[0]
    sign = ", as one flipped bit leaves it" if difference.is_one_flip else ""
    return f" in {difference.count} of {_counted(difference.size, 'element')}, first at {first.words}{sign}"
