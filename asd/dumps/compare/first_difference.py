"""The one answer: where two runs differ first, in the order of execution.

    other framework, tool, machine or types   the first rows that rounding does not explain
    statistics alone, or other calls          the first rows that differ
    bits of both sides                        the call whose inputs agree and whose output does not: it is named

An operator is named in the last case alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from asd.dumps.compare.comparison import CallRows, ComparedRow
from asd.dumps.compare.metrics import BitDifference
from asd.dumps.compare.origin import Agrees, CallGraph, suffix_of, trusted_name
from asd.dumps.compare.rounding import pair_of, within_rounding
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import is_random

_COMMUNICATION = ("Distributed.", "MintDistributed.")
_COMMUNICATION_WORDS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "all_reduce", "all_gather")
_UNKNOWN = "the dumps do not say on what they were made"
_CUT = "parts of tensors were dumped, by the key slice, so what a call was given is not all known"
_HIDDEN = "statistics may hide an earlier difference: dump tensors or CRC32s (summary_mode md5) to name an operator"
ROWS = "rows"
_LEADS = {
    "operator": "The first wrong operator is {call}",
    "communication": "The first wrong communication is {call}",
    "module": "The first module to differ is {call}",
    "random": "{call} is random and gave other numbers",
    "weight": "A weight differs before {call} uses it",
    "given": "What {call} is given differs already",
}
_ROWS = {
    "rounding": "The first rows outside rounding are",
    "statistics": "The first rows whose statistics differ are",
    "bits": "The first rows that differ are",
}
_LISTED = 3


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs differ first.

    Attributes:
        call: Name of the call in the run under test.
        trusted_call: Its name in the trusted run.
        rows: Names of its rows that differ; the first is the one that the rest speaks of.
        kind: `operator` or `communication` where bits say that it computed wrongly; `module`, `random`, `weight` or
            `given` where they say what differs first; `rows` where bits do not decide.
        basis: What agreement means: `bits`, `statistics`, or `rounding` for what that explains.
        agreeing: Calls before it, all of which agree.
        reason: Why, in words.
        difference: The elements that differ, when both tensors are at hand.
    """

    call: str
    trusted_call: str
    rows: tuple[str, ...]
    kind: str
    basis: str
    agreeing: int
    reason: str
    difference: BitDifference | None = None

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        if self.kind != ROWS:
            return f"{_LEADS[self.kind].format(call=self.call)}: {self.reason}{_bits(self.difference)}."
        more = f" and {len(self.rows) - _LISTED} more" if len(self.rows) > _LISTED else ""
        return f"{_ROWS[self.basis]} {', '.join(self.rows[:_LISTED])}{more}: {self.reason}{_bits(self.difference)}."


def counted(count: int, noun: str) -> str:
    """A number of things in words."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _bits(difference: BitDifference | None) -> str:
    return "" if difference is None else f" in {difference.words}"


class FirstDifference:
    """Follows a comparison and says where the runs part.

    Args:
        tested: The run under test.
        trusted: The trusted run.
        mode: `tensor`, `md5` or `statistics`.
        carried: The most that was taken for rounding in the step before.

    Attributes:
        explained: What was taken for rounding or left out, in words; empty when nothing was.
        carried: The most that was taken for rounding, for the next step.
    """

    def __init__(self, tested: Dump, trusted: Dump, mode: str, carried: float = 0.0) -> None:
        self._tested, self._trusted, self._mode = tested, trusted, mode
        self.explained, self.carried = "", carried
        self._calls: list[CallRows] = []

    def add(self, call: CallRows) -> None:
        """Takes in the next call, in the order of execution."""
        self._calls.append(call)

    def result(self) -> Divergence | None:
        """Where the runs part; None when they agree in everything that could be compared."""
        graph = CallGraph(self._trusted, self._calls)
        agrees, unread = self._without_unread(_same)
        first = graph.first(agrees)
        if first is None:
            return None
        other = self._other()
        if other or not self._trusted.environment:
            calls = ((call, graph.beside(call)) for call in self._calls)
            rounded, explained, self.carried = within_rounding(calls, self.carried)
            self.explained = "; ".join(filter(None, (self.explained, explained)))
            rounded, _ = self._without_unread(rounded)
            outside = graph.first(rounded)
            if outside is None:
                return None
            if other or outside is not first:
                return self._rows(outside, rounded, "rounding", f"{other or _UNKNOWN}; {explained}")
        if self._mode == "statistics":
            return self._rows(first, agrees, "statistics", f"{self._undecided(first)}{_HIDDEN}")
        if self._tested.cut or self._trusted.cut:
            return self._rows(first, agrees, "bits", _CUT)
        if shifted := self._shifted(first):
            return self._rows(first, agrees, "bits", shifted)
        return self._named(graph, first, agrees, unread)

    def _other(self) -> str:
        """Why sound runs need not be equal bit for bit, in words; empty where they have to be."""
        for what in ("framework", "tool", "environment"):
            ours, theirs = getattr(self._tested, what), getattr(self._trusted, what)
            if ours != theirs:
                return f"the runs are of another {what}, {ours or 'unknown'} and {theirs or 'unknown'}"
        row = next((row for call in self._calls for row in call.rows if row.types_differ), None)
        return "" if row is None else f"the types differ, first at {row.name}"

    def _shifted(self, first: CallRows) -> str:
        """Why calls of one name may be others before the first difference, in words."""
        for call in self._calls:
            if call is first:
                break
            if call.rows and all(row.trusted is None for row in call.rows):
                return f"only the run under test has {call.name}, so calls of one name may be others"
        matched = {trusted_name(call) for call in self._calls if any(row.tested is not None for row in call.rows)}
        for name, entry in self._trusted.entries.items():
            if name == trusted_name(first):
                break
            if name not in matched and entry.slots:
                return f"only the trusted run has {name}, so calls of one name may be others"
        return ""

    def _undecided(self, first: CallRows) -> str:
        """How many rows before a call could not be told, in words."""
        before = self._calls[: self._calls.index(first)]
        count = sum(row.same is None and row.tested is not None for call in before for row in call.rows)
        return f"{counted(count, 'row')} before can't be told; " if count else ""

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
            self.explained = f"{unread[0].name} differs, which nothing in the dump takes"
        places = {id(row) for row in unread}
        return (lambda row: None if id(row) in places else agrees(row)), unread

    def _rows(self, call: CallRows, agrees: Agrees, basis: str, reason: str) -> Divergence:
        rows = [row for row in call.rows if agrees(row) is False]
        return self._divergence(call, rows, "rows", basis, reason)

    def _named(self, graph: CallGraph, first: CallRows, agrees: Agrees, unread: list[ComparedRow]) -> Divergence:
        call = graph.origin(first, agrees)
        taken = graph.taken(call)
        wrong_taken = [row for row in taken if agrees(row) is False]
        if wrong_taken:
            kind, row, reason = graph.blame(call, wrong_taken, agrees)
            return self._divergence(call, [row], kind, "bits", reason)
        wrong = [row for row in call.rows if agrees(row) is False]
        if not taken or any(agrees(row) is None for row in taken):
            why = "its inputs are not all known" if taken else "its inputs are not known"
            return self._rows(call, agrees, "bits", f"{why}, and {suffix_of(call, wrong[0])} differs")
        forward = call.name.replace("backward", "forward", 1)
        left = next((row for row in unread if row.name.startswith(f"{forward}.")), None)
        if left is not None and forward != call.name:
            why = f"{left.name} differs too, which this call alone may have taken"
            return self._rows(call, agrees, "bits", f"{why}; {suffix_of(call, wrong[0])} differs")
        agree = "agrees" if len(taken) == 1 else "agree"
        how = "bit for bit" if self._mode == "tensor" else "by CRC32"
        shown = f", which {first.name} shows first" if _kind(call.name) == "module" and first is not call else ""
        reason = f"its {counted(len(taken), 'input')} {agree} {how} and {suffix_of(call, wrong[0])} differs{shown}"
        return self._divergence(call, wrong, _kind(call.name), "bits", reason)

    def _divergence(
        self, call: CallRows, rows: Sequence[ComparedRow], kind: str, basis: str, reason: str
    ) -> Divergence:
        before = self._calls[: self._calls.index(call)]
        agreeing = sum(any(row.same for row in one.rows) for one in before)
        metrics = rows[0].metrics
        names = tuple(row.name if row.tested is not None else row.trusted_name for row in rows)
        difference = None if metrics is None else metrics.difference
        return Divergence(call.name, trusted_name(call), names, kind, basis, agreeing, reason, difference)


def _same(row: ComparedRow) -> bool | None:
    return row.same


def _kind(name: str) -> str:
    """What a call is whose output differs though its inputs agree."""
    if is_random(name):
        return "random"
    if name.startswith(("Cell.", "Module.")):
        return "module"
    low = name.lower()
    communicates = name.startswith(_COMMUNICATION) or any(word in low for word in _COMMUNICATION_WORDS)
    return "communication" if communicates else "operator"
