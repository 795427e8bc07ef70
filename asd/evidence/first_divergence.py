"""The one answer: where two runs part first, in the order of execution, and what that says about the cause.

A call whose inputs agree and whose output differs computed wrongly. A call whose input differs was given something
wrong; whether that is data, a weight, or the result of an operation that the dump does not hold is told from where the
same tensor stands elsewhere in the trusted dump.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from asd.evidence.bits import Difference
from asd.evidence.compare import CallRows
from asd.evidence.dump_folder import Dump
from asd.evidence.rows import Row
from asd.evidence.slots import Slot, split_name
from asd.evidence.verdict import BAD, UNMATCHED

__all__ = ["Divergence", "FirstDivergence"]

_COMMUNICATION = ("Distributed.", "MintDistributed.")
_COMMUNICATION_WORDS = ("allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "all_reduce", "all_gather")
_TAKES_WEIGHT = {
    "linear", "dense", "matmul", "batchmatmul", "conv1d", "conv2d", "conv3d", "embedding", "gather", "layer_norm",
    "layernorm", "rms_norm", "rmsnorm", "group_norm", "batch_norm", "biasadd",
}  # fmt: skip
_BASES = {"bits": "bit for bit", "crc": "by CRC32", "statistics": "in their statistics", "value": "in value"}


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs part first.

    Attributes:
        call: Name of the call in the run under test.
        trusted_call: Its name in the trusted run.
        slot: Name of the first slot that differs, the one the judgement rests on.
        kind: `operator`, `weight`, `input` or `communication`.
        confidence: `high`, `medium` or `low`.
        basis: What agreement means: `bits`, `crc`, `statistics`, `value`, or `rule` for the rule of accuracy.
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
    difference: Difference | None

    @property
    def sentence(self) -> str:
        """All of it in one sentence."""
        lead = {
            "operator": f"The first wrong operator is {self.call}",
            "communication": f"The first wrong communication is {self.call}",
            "weight": f"A weight is wrong before {self.call} uses it",
            "input": f"What {self.call} is given is wrong already",
        }[self.kind]
        return f"{lead}: {self.reason}{_bits(self.difference)} ({self.kind}, confidence {self.confidence})."


@dataclass
class _Seen:
    """The first call that differs, and how many agreed before it."""

    call: CallRows | None = None
    agreeing: int = 0


class FirstDivergence:
    """Follows a comparison and keeps what is needed to say where the runs part.

    Args:
        trusted: The trusted run.
        same_framework: Whether both runs are of one framework, so that equal bits can be expected.
        by: `bits`, `rule`, or `auto`: bits within one framework unless the runs differ everywhere by a little, as
            two kinds of devices do, and else the rule of accuracy.
    """

    def __init__(self, trusted: Dump, *, same_framework: bool, by: str = "auto") -> None:
        self._trusted, self._same_framework, self._by = trusted, same_framework, by
        self._bits, self._rule = _Seen(), _Seen()
        self._backward: dict[tuple[str, str], CallRows] = {}
        self._order: dict[str, int] = {}

    def add(self, call: CallRows) -> None:
        """Takes in the next call, in the order of execution."""
        for seen, agrees in ((self._bits, _same), (self._rule, _passes)):
            if seen.call is None:
                if any(agrees(row) is False for row in call.rows):
                    seen.call = call
                elif any(agrees(row) for row in call.rows):
                    seen.agreeing += 1
        # Gradients of parameters may stand before the call whose inputs they came of.
        if ".backward" in call.name and (self._rule.call is None or ".parameters_grad" in self._rule.call.name):
            base, direction, count = split_name(call.name)
            if direction == "backward":
                self._backward[base, count] = call

    def result(self) -> Divergence | None:
        """Where the runs part; None when they agree in everything that could be compared."""
        by_rule = self._by == "rule" or (self._by == "auto" and (not self._same_framework or self._is_wide()))
        seen, agrees = (self._rule, _passes) if by_rule else (self._bits, _same)
        return None if seen.call is None else self._judge(seen.call, seen.agreeing, agrees, by_rule=by_rule)

    def _is_wide(self) -> bool:
        """Whether the first difference is small but nearly everywhere, while something else breaks the rule later."""
        if self._bits.call is None or self._rule.call is None or self._rule.call is self._bits.call:
            return False
        rows = [row for row in self._bits.call.rows if row.same is False]
        found = [row.metrics.difference for row in rows if row.metrics is not None and row.metrics.difference]
        return bool(found) and all(difference.count > difference.size // 2 for difference in found)

    def _judge(
        self, call: CallRows, agreeing: int, agrees: Callable[[Row], bool | None], *, by_rule: bool
    ) -> Divergence:
        taken = [row for row in call.rows if row.state in ("input", "parameters")]
        base, direction, count = split_name(call.name)
        if direction == "parameters_grad" and (backward := self._backward.get((base, count))) is not None:
            taken = [row for row in backward.rows if row.state == "input"]
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
                f"{'within the rule of accuracy' if by_rule else _BASES[_weakest(known, row)]} and "
                f"{_suffix(call, row)} differs"
                if known
                else f"{_suffix(call, row)} differs; its inputs are not known"
            )
        difference = row.metrics.difference if row.metrics is not None else None
        return Divergence(
            call.name, _trusted_name(call), row.name, kind, confidence, "rule" if by_rule else row.basis, agreeing,
            reason, difference,
        )  # fmt: skip

    def _origin(self, call: CallRows, wrong: list[Row], agrees: Callable[[Row], bool | None]) -> tuple[str, str, str]:
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
        direction = split_name(call.name)[1]
        if not any(split_name(name)[1] == direction for name in self._before(_trusted_name(call))):
            return "input", "high" if row.basis in ("bits", "crc") else "medium", f"{what} of the first call differs"
        between = f"an operation between {self._last_before(call)} and it that the dump does not hold went wrong"
        return "operator", "low", f"{what} differs and no call in the dump gave it, so {between}"

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


def _bits(difference: Difference | None) -> str:
    if difference is None or not difference.elements:
        return ""
    first = difference.elements[0]
    sign = ", as one flipped bit leaves it" if difference.is_one_flip else ""
    return f" in {difference.count} of {_counted(difference.size, 'element')}, first at {first.words}{sign}"
