"""What a call was given wrong: data, a weight, or the result of an operation that the dump does not hold.

It is told from where the same tensor stands elsewhere in the trusted dump.
"""

from __future__ import annotations

from asd.dumps.compare.calls import CallRows
from asd.dumps.compare.rounding import Agrees
from asd.dumps.compare.rows import ComparedRow
from asd.dumps.formats.dump_folder import Dump
from asd.dumps.formats.slots import Slot, split_name

__all__ = ["WrongInputs", "fingerprint", "suffix_of", "trusted_name"]

_TAKES_WEIGHT = {
    "linear",
    "dense",
    "matmul",
    "batchmatmul",
    "conv1d",
    "conv2d",
    "conv3d",
    "embedding",
    "gather",
    "layer_norm",
    "layernorm",
    "rms_norm",
    "rmsnorm",
    "group_norm",
    "batch_norm",
    "biasadd",
}


class WrongInputs:
    """Where wrong inputs come from.

    Args:
        trusted: The trusted run.
    """

    def __init__(self, trusted: Dump) -> None:
        self._trusted = trusted

    def of(self, call: CallRows, wrong: list[ComparedRow], agrees: Agrees) -> tuple[str, str, str]:
        """Kind, confidence and reason of a call that was given something wrong.

        Args:
            call: It.
            wrong: What it was given wrong, at least one row.
            agrees: Whether both sides of a row agree.
        """
        row = wrong[0]
        what = suffix_of(call, row)
        if row.state == "parameters":
            confidence = "high" if row.basis in ("bits", "crc") else "medium"
            return "weight", confidence, f"{what} differs while its inputs agree"
        parameters, producers = self.places(trusted_name(call))
        for row in (one for one in wrong if one.state == "input"):
            print_ = None if row.trusted is None else fingerprint(row.trusted)
            what = suffix_of(call, row)
            if print_ in parameters:
                return "weight", "high", f"{what} is {parameters[print_]}, and it differs"
            if print_ in producers:
                return "input", "medium", f"{what} was right when {producers[print_]} gave it, and was changed since"
        row = wrong[0]
        what = suffix_of(call, row)
        if row.trusted is not None and row.trusted.scalar is not None:
            return "input", "medium", f"the argument {what} differs"
        if _may_be_weight(call.name, row) and any(agrees(other) for other in call.rows if other.state == "input"):
            return "weight", "medium", f"{what} differs, which no call before gave, while the other inputs agree"
        if not self._had_data(trusted_name(call), parameters):
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
            given = {fingerprint(slot) for slot in slots if slot.state == "input" and slot.scalar is None}
            if direction != "forward" or not given <= {*own, None}:
                return True
            own |= {fingerprint(slot) for slot in slots if slot.state == "output"}
        return False

    def _before(self, name: str) -> list[str]:
        names = list(self._trusted.entries)
        return names[: names.index(name)] if name in self._trusted.entries else []

    def _last_before(self, call: CallRows) -> str:
        names = self._before(trusted_name(call))
        return names[-1] if names else "the beginning"

    def places(self, until: str) -> tuple[dict[object, str], dict[object, str]]:
        """The parameters of the trusted run, and what its calls before `until` gave, by fingerprint."""
        parameters: dict[object, str] = {}
        producers: dict[object, str] = {}
        before = True
        for name, entry in self._trusted.entries.items():
            before = before and name != until
            for slot in entry.slots:
                if slot.state == "parameters":
                    parameters.setdefault(fingerprint(slot), f"{slot.suffix} of {split_name(name)[0]}")
                elif slot.state == "output" and before:
                    producers[fingerprint(slot)] = name
        parameters.pop(None, None)
        producers.pop(None, None)
        return parameters, producers


def fingerprint(slot: Slot | None) -> object:
    """What tells a tensor from others; None when it could be many."""
    if slot is None or slot.scalar is not None or slot.values[0] is None or slot.values[0] == slot.values[1]:
        return None
    return slot.shape, slot.md5 or slot.values


def _may_be_weight(name: str, row: ComparedRow) -> bool:
    parts = split_name(name)[0].lower().split(".")
    index = (row.tested or row.trusted).suffix.split(".")[1:2]  # type: ignore[union-attr]
    return index != ["0"] and any(part in _TAKES_WEIGHT for part in parts[1:])


def trusted_name(call: CallRows) -> str:
    """The name of a call in the trusted run, or its own."""
    for row in call.rows:
        if row.trusted is not None:
            return row.trusted_name[: -len(row.trusted.suffix) - 1]
    return call.name


def suffix_of(call: CallRows, row: ComparedRow) -> str:
    """The name of a row within its call."""
    return row.name.removeprefix(call.name).lstrip("._")
