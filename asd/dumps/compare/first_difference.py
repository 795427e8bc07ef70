"""The one answer: whether an operator computed wrongly, and where two runs part first in the order of execution.

    wrong_operator      all that was asked of a call is equal, and its result is outside what its own rounding explains
    asked_differently   a setting, an argument, the order, the structure, a type, a weight or the batch differs
    cannot_tell         something differs, and what would tell why is missing: it is named
    do_not_part         rows were compared, and all agree

Bits decide where both runs have one framework, tool and environment that repeats itself. Elsewhere rounding does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from asd.dumps.compare.asked import ENVIRONMENT, Asked, asked_of, differing
from asd.dumps.compare.comparison import CallRows, ComparedRow
from asd.dumps.compare.matching import Matching
from asd.dumps.compare.metrics import BitDifference
from asd.dumps.compare.origin import Agrees, CallGraph, suffix_of
from asd.dumps.compare.rounding import Rounding, pair_of
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import is_random, split_name
from asd.errors import and_more, how_many


class Answer(str, Enum):
    """Answer of a comparison."""

    WRONG_OPERATOR = "wrong_operator"
    ASKED_DIFFERENTLY = "asked_differently"
    CANNOT_TELL = "cannot_tell"
    DO_NOT_PART = "do_not_part"


_COMMUNICATION = ("Distributed.", "MintDistributed.")
_COMMUNICATION_WORDS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "all_reduce", "all_gather")
_UNKNOWN = "the dumps do not contain their complete environment"
_HIDDEN = "statistics may hide an earlier difference: dump tensors or CRC32s (summary_mode md5) to name an operator"
_SUMS = "check sums alone do not show by how much"
_REDUCED = "it differs as TF32 or HF32 leaves it, and the dumps do not say whether that was on"
ROWS = "rows"
_WRONG = {
    "operator": "The first wrong operator is {call}",
    "communication": "The first wrong communication is {call}",
    "module": "The first module to differ is {call}",
}
_ROWS = {
    "rounding": "the first rows outside rounding are",
    "statistics": "the first rows whose statistics differ are",
    "bits": "the first rows that differ are",
}


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs differ first."""

    call: str  # name of the call in the run under test
    trusted_call: str  # its name in the trusted run
    rows: tuple[str, ...]  # names of its rows that differ; the other attributes are about the first
    # `operator`, `communication` or `module` for a wrong result; `attribute`, `argument`, `type`, `shape`, `order`,
    # `structure`, `weight`, `batch`, `random` or `optimizer` for a different request; `rows` where it can't be told
    kind: str
    basis: str  # how rows are compared: by `bits`, `statistics`, or within `rounding`
    agreeing: int  # calls before it, all of which agree
    reason: str  # why, in words
    difference: BitDifference | None = None  # the elements that differ, when both tensors are at hand
    apart: float | None = None  # difference of the first row, relative to the inputs of its call; None if unknown
    bound: float | None = None  # largest difference that rounding explains

    @property
    def answer(self) -> Answer:
        """Returns the answer."""
        if self.kind in _WRONG:
            return Answer.WRONG_OPERATOR
        return Answer.CANNOT_TELL if self.kind == ROWS else Answer.ASKED_DIFFERENTLY

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        margin = "" if self.apart is None or self.bound is None else f" ({margin_of(self.apart, self.bound)})"
        end = f"{self.reason}{_bits(self.difference)}{margin}."
        if self.kind in _WRONG:
            return f"{_WRONG[self.kind].format(call=self.call)}: {end}"
        if self.kind != ROWS:
            return f"The runs were asked for different things, first at {self.call or 'the end'} ({self.kind}): {end}"
        return f"Can't tell which operator is wrong, if any: {_ROWS[self.basis]} {and_more(self.rows)}: {end}"


def margin_of(apart: float, bound: float) -> str:
    """Returns a difference and its bound, as text."""
    return f"difference {apart:.2g}, rounding explains {bound:.2g}"


def _bits(difference: BitDifference | None) -> str:
    return "" if difference is None else f" in {difference.words}"


class FirstDifference:
    """Follows a comparison and says where the runs part.

    Args:
        tested: The run under test.
        trusted: The trusted run.
        matching: Which calls belong together.
        mode: `tensor`, `md5` or `statistics`.
        carried: The most that was taken for rounding in the step before.
    """

    def __init__(self, tested: Dump, trusted: Dump, matching: Matching, mode: str, carried: float = 0.0) -> None:
        self._tested, self._trusted, self._mode, self._moved = tested, trusted, mode, matching.moved
        self.explained = ""  # what was taken for rounding or left out, in words; empty when nothing was
        self.carried = carried  # the most that was taken for rounding, for the next step
        self._calls: list[CallRows] = []
        self._types = ""
        self._alike = tested.framework == trusted.framework
        self._other = self._differing()
        ours, theirs = tested.environment, trusted.environment
        whole = all(key in each for each in (ours, theirs) for key in ENVIRONMENT)
        self._exact = whole and ours == theirs and (ours["device"] == "CPU" or ours["deterministic"].startswith("ON"))
        self._reduced = None if not whole else any(ours[key] != theirs[key] for key in ("device", "chip", "precision"))
        self._basis = "bits" if self._exact and not self._other else "rounding"

    def add(self, call: CallRows) -> None:
        """Takes in the next call, in the order of execution."""
        self._calls.append(call)
        row = next((row for row in call.rows if row.types_differ), None)
        if row is not None and not self._types:
            self._basis, self._types = "rounding", f"the types differ, first at {row.name}"

    def result(self) -> Divergence | None:
        """Returns the first difference of the runs; None when they agree in all that could be compared."""
        self._graph = graph = CallGraph(self._trusted, self._calls)
        agrees, self._unread = self._without_unread(lambda row: row.same)
        self._asked = self._asked_for()
        first = graph.first(agrees)
        if first is None:
            self.explained = self.explained or "all are equal"
            return self._first_asked(self._calls) or self._optimizer()
        # Where bits decide the distances are only shown.
        distances = Rounding(((call, graph.beside(call)) for call in self._calls), self.carried, reduced=self._reduced)
        unclear: Divergence | None = None
        if self._basis == "rounding":
            agrees, _ = self._without_unread(lambda row: row.agrees)
            self.carried = distances.carried
            self._explain(distances.largest)
            first = graph.first(agrees)
            unclear = self._unclear(_is_sum_alone, _SUMS) if first is None else None
            unclear = unclear or self._unclear(lambda row: any(row is each for each in distances.unclear), _REDUCED)
        if first is None:
            return self._first_asked(self._calls) or unclear or self._optimizer()
        call = graph.origin(first, agrees)
        named = self._named(call, first, agrees)
        if named.kind in _WRONG:
            return named
        # What types leave is in the bound; all else that was asked differently explains whatever differs.
        until = [one for one in self._calls[: self._calls.index(first) + 1] if one is not call]
        asked = self._first_asked([*until, call, *graph.around(call)], but="type")
        rewired = graph.rewired(call) if self._alike and asked is None else None
        return asked or (named if rewired is None else self._of_asked(call, rewired))

    def _asked_for(self) -> dict[int, list[Asked]]:
        """Returns the settings and arguments that differ, by call; empty for two frameworks."""
        calls = self._calls if self._alike else []
        sides = self._tested, self._trusted
        found = {id(call): list(asked_of(call, *sides, moved=call.name in self._moved)) for call in calls}
        return {key: asked for key, asked in found.items() if asked}

    def _first_asked(self, calls: Sequence[CallRows], but: str = "") -> Divergence | None:
        found = ((call, each) for call in calls for each in self._asked.get(id(call), ()) if each.kind != but)
        return next((self._of_asked(*each) for each in found), None)

    def _of_asked(self, call: CallRows, asked: Asked) -> Divergence:
        rows = [asked.row] if asked.row is not None else call.rows[:1]
        where = f"{suffix_of(call, asked.row)}: " if asked.row is not None and asked.row.tested is not None else ""
        found = self._divergence(call, rows, asked.kind, self._basis, f"{where}{asked.reason}")
        return replace(found, difference=None, apart=None, bound=None)

    def _optimizer(self) -> Divergence | None:
        """Returns a setting of the optimizer that differs, where nothing else does."""
        ours, theirs = self._tested.optimizer, self._trusted.optimizer
        if ours is None or theirs is None or ours == theirs:
            return None
        return Divergence("", "", (), "optimizer", self._basis, len(self._calls), differing(ours, theirs))

    def _differing(self) -> str:
        """Returns why sound runs need not be equal bit for bit; empty where they have to be, or nobody knows."""
        for what in ("framework", "tool"):
            ours, theirs = getattr(self._tested, what), getattr(self._trusted, what)
            if ours != theirs:
                return f"the runs are of another {what}, {ours or 'unknown'} and {theirs or 'unknown'}"
        ours, theirs = self._tested.environment, self._trusted.environment
        return f"the runs are of another environment: {differing(ours, theirs)}" if ours != theirs else ""

    def _explain(self, largest: ComparedRow | None) -> None:
        margin = "" if largest is None else margin_of(largest.difference or 0.0, largest.bound or 0.0)
        told = f"at most {largest.name} was taken for rounding ({margin})" if largest is not None else "all are equal"
        self.explained = "; ".join(filter(None, (self.explained, self._other, self._types, told)))

    def _unclear(self, is_unclear: Callable[[ComparedRow], bool], why: str) -> Divergence | None:
        """Returns the first undecided rows."""
        found = ((call, [row for row in call.rows if is_unclear(row)]) for call in self._calls)
        reason = f"{self._other or _UNKNOWN}; {why}"
        return next((self._divergence(call, rows, ROWS, "bits", reason) for call, rows in found if rows), None)

    def _undecided(self, first: CallRows) -> str:
        """Returns in words how many rows before a call are undecided; empty for none."""
        before = self._calls[: self._calls.index(first)]
        count = sum(row.same is None and row.tested is not None for call in before for row in call.rows)
        return f"{how_many(count, 'row')} before can't be told; " if count else ""

    def _without_unread(self, agrees: Agrees) -> tuple[Agrees, list[ComparedRow]]:
        """Leaves out additional outputs that no call uses: a kernel need not write them."""
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

    def _named(self, call: CallRows, first: CallRows, agrees: Agrees) -> Divergence:
        """Returns the call that computed wrongly, if both runs asked the same of it; else why it is not known."""
        taken = self._graph.taken(call)
        wrong = [row for row in call.rows if agrees(row) is False]
        wrong_taken = [row for row in taken if agrees(row) is False]
        kind, row, reason = self._graph.blame(call, wrong_taken, agrees) if wrong_taken else (ROWS, wrong[0], "")
        if self._mode == "statistics" and self._basis == "bits" and kind == ROWS:
            return self._divergence(call, wrong, ROWS, "statistics", f"{self._undecided(call)}{_HIDDEN}")
        if wrong_taken:
            reason = "; ".join(filter(None, (self._other, self._types, reason)))
            return self._divergence(call, [row] if kind != ROWS else wrong_taken, kind, self._basis, reason)
        differs = f"{suffix_of(call, wrong[0])} differs"
        if missing := self._types or self._missing(call, taken):
            return self._divergence(call, wrong, ROWS, self._basis, f"{missing}; {differs}")
        agree, how = "agrees" if len(taken) == 1 else "agree", "bit for bit" if self._mode == "tensor" else "by CRC32"
        kind = _kind(call.name)
        shown = f", which {first.name} shows first" if kind == "module" and first is not call else ""
        reason = f"its {how_many(len(taken), 'input')} {agree} {how} and {differs}{shown}"
        return self._divergence(call, wrong, kind, self._basis, reason)

    def _missing(self, call: CallRows, taken: list[ComparedRow]) -> str:
        """Returns in words the evidence that is missing to blame a call; empty where none is."""
        rows = self._graph.forward_rows(call)
        left = next((row for row in self._unread if any(row is each for each in rows)), None)
        unequal = next((row for row in [*taken, *rows] if row is not left and not row.same), None)
        varies = self._trusted.environment.get("device") == "CPU" and ".log." in call.name.lower()
        reasons = (
            (self._other, self._other),
            (self._mode == "statistics", _HIDDEN),
            (not taken, "its inputs are not known"),
            (any(row.same is None for row in taken), "its inputs are not all known"),
            (unequal is not None, f"{unequal and unequal.name} is not equal"),
            (split_name(call.name)[1] == "backward" and not rows, "its forward call is not in the dump"),
            (left is not None, f"{left and left.name} differs too, which this call alone may have taken"),
            (not self._has_settings(call), "the dumps do not hold the settings it was made with"),
            (self._is_asked(call), "it was asked for something else"),
            (varies and call.rows[-1].agrees is not False, "on a CPU its last bits vary between launches"),
        )
        return next((words for holds, words in reasons if holds), "")

    def _has_settings(self, call: CallRows) -> bool:
        """Returns whether what an operator or module was made with is known; an API is given all of it."""
        forward = self._graph.forward_of(call)
        sides = (forward.tested, forward.trusted) if forward is not None else (None,)
        is_given_all = not call.name.startswith(("Cell.", "Module.", "Primitive."))
        return is_given_all or all(entry is not None and entry.settings is not None for entry in sides)

    def _is_asked(self, call: CallRows) -> bool:
        """Returns whether a call was asked differently, or its forward call, or one inside the module that it is."""
        forward = self._graph.forward_of(call)
        places = [one for one in self._calls if id(one) in self._asked]
        return any(one in (call, forward) or forward in list(self._graph.around(one)) for one in places)

    def _divergence(
        self, call: CallRows, rows: Sequence[ComparedRow], kind: str, basis: str, reason: str
    ) -> Divergence:
        before = self._calls[: self._calls.index(call)]
        agreeing = sum(any(row.same for row in one.rows) for one in before)
        names = tuple(row.name if row.tested is not None else row.trusted_name for row in rows)
        row = rows[0] if rows else None
        difference = None if row is None or row.metrics is None else row.metrics.difference
        margin = (None, None) if row is None else (row.difference, row.bound)
        return Divergence(call.name, call.trusted_name, names, kind, basis, agreeing, reason, difference, *margin)


def _is_sum_alone(row: ComparedRow) -> bool:
    """Returns whether two tensors differ of which no more than check sums is known."""
    sums = [slot.md5 for slot in (row.tested, row.trusted) if slot is not None and slot.values == (None,) * 4]
    return row.same is False and row.metrics is None and not row.is_value and any(sums)


def _kind(name: str) -> str:
    """Returns the kind of a call: `random`, `module`, `communication` or `operator`."""
    if is_random(name):
        return "random"
    if name.startswith(("Cell.", "Module.")):
        return "module"
    low = name.lower()
    communicates = name.startswith(_COMMUNICATION) or any(word in low for word in _COMMUNICATION_WORDS)
    return "communication" if communicates else "operator"
