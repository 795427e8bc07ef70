"""The rows of a dump: one slot for each tensor or scalar an operator took or gave."""

from __future__ import annotations

import math
import re
import struct
import zlib
from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec

from asd.errors import StateError, printable

STATES = ("input", "parameters", "output", "parameters_grad")
"""The kinds of slots, in the order of the rows of one operator."""

_KEYS = {
    "input_args": "input",
    "input": "input",
    "input_kwargs": "input",
    "parameters": "parameters",
    "output": "output",
}
_DIRECTIONS = ("forward", "backward", "parameters_grad")
_RANDOM = re.compile(
    r"random|^rand|dropout|bernoulli|multinomial|^uniform_?$|^uniform(int|real)$|(log|standard|truncated)_?normal"
    r"|^normal_?$|^poisson$|gumbel|^(standard_?)?laplace$|^gamma$|rrelu|^exponential_?$|cauchy|candidate_?sampler"
    r"|choice_?with_?mask|^shuffle$",
    re.IGNORECASE,
)
_DEEPEST, _LONGEST, _SIZES, _MOST = 20, 200, 64, 1 << 63
_NUMBERS = struct.Struct("4d")
_CRC = re.compile("[0-9a-f]{8}")


class SlotForm(msgspec.Struct, frozen=True, gc=False):
    """All of a slot but its numbers, held once for many slots."""

    # its place in the call: `input.0`, `output.1.2`, `parameters.weight`; for the gradients of parameters the
    # parameter's name alone
    suffix: str
    state: str  # one of `STATES`
    dtype: str  # as the file writes it (`Float32`, `torch.float32`); `<class 'int'>` for a scalar
    shape: tuple[int, ...] = ()  # empty for a scalar and for a tensor of no dimension
    requires_grad: bool | None = None  # as in the file, or None
    scalar: str | None = None  # the value as text, if it is not a tensor; else None
    parameter: str | None = None  # the name of the weight, if the tensor is one and the file names it


class Slot(msgspec.Struct, gc=False):
    """One tensor or scalar of one call."""

    form: SlotForm  # its place, type and shape, whose fields are attributes of the slot too
    # `values`, as bytes if all are floats, with the check sum if it is a CRC32: a dump has very many
    packed: bytes | tuple[Any, Any, Any, Any]
    other: str | None = None  # a check sum that is not packed, or None
    data_name: str | None = None  # bare name of the file with the tensor, or None

    suffix = property(attrgetter("form.suffix"))
    state = property(attrgetter("form.state"))
    dtype = property(attrgetter("form.dtype"))
    shape = property(attrgetter("form.shape"))
    requires_grad = property(attrgetter("form.requires_grad"))
    scalar = property(attrgetter("form.scalar"))
    parameter = property(attrgetter("form.parameter"))

    @classmethod
    def of(cls, form: SlotForm, values: Any = (None,) * 4, md5: str | None = None, name: str | None = None) -> Slot:
        """Returns a slot with these numbers, check sum and name of the file."""
        if not all(type(each) is float for each in values):
            return cls(held_once(form), values, md5, name)
        end = bytes.fromhex(md5) if md5 is not None and _CRC.fullmatch(md5) else b""
        return cls(held_once(form), held_once(_NUMBERS.pack(*values) + end), None if end else md5, name)

    @property
    def values(self) -> tuple[Any, Any, Any, Any]:
        """Maximum, minimum, mean and L2 norm; None where the file has none. Four times the value of a number."""
        return _NUMBERS.unpack_from(self.packed) if isinstance(self.packed, bytes) else self.packed

    @property
    def md5(self) -> str | None:
        """The check sum as the file writes it, mostly a CRC32; or None."""
        end = self.packed[_NUMBERS.size :] if isinstance(self.packed, bytes) else b""
        return end.hex() if end else self.other

    @property
    def kind(self) -> str:
        """The type of its elements in the words of every framework: `float32`."""
        return _kind(self.form.dtype)


class Entry(msgspec.Struct, gc=False):
    """One direction of one call of an operator."""

    name: str  # its name in the dump, such as `Mint.add.0.forward` or `Cell.fc.Dense.forward.0`
    slots: tuple[Slot, ...]  # its inputs and outputs, in the order of `STATES`
    # arguments that an operator or a module was created with; None if the file has none
    settings: dict[str, str] | None = None


def split_name(name: str) -> tuple[str, str, str]:
    """Returns a name without its direction and count, the direction, and the count; the last two may be empty.

    >>> split_name("Cell.fc.Dense.backward.2")
    ('Cell.fc.Dense', 'backward', '2')
    >>> split_name("Mint.add.0.forward")
    ('Mint.add', 'forward', '0')
    """
    parts = name.split(".")
    if parts[-1] in _DIRECTIONS:
        direction = parts.pop()
        count = parts.pop() if len(parts) > 1 and parts[-1].isdigit() else ""
        return ".".join(parts), direction, count
    if len(parts) > 2 and parts[-2] in _DIRECTIONS and parts[-1].isdigit():
        return ".".join(parts[:-2]), parts[-2], parts[-1]
    return name, "", ""


def is_random(name: str) -> bool:
    """Returns whether the API, operator or class of a call draws random numbers, by its name.

    >>> is_random("Primitive.dropout.Dropout.0.forward"), is_random("Mint.add.0.forward")
    (True, False)
    """
    return _RANDOM.search(split_name(name)[0].rpartition(".")[2]) is not None


def read_entry(name: str, found: object) -> Entry:
    """Returns the entry that one member of `data` describes; keys it does not know are passed over."""
    if not isinstance(found, dict):
        raise StateError(f"the entry {name!r} is not an object.")
    slots: list[Slot] = []
    if ".parameters_grad" in name and split_name(name)[1] == "parameters_grad":
        for key, value in found.items():
            held = value[0] if isinstance(value, list) and len(value) == 1 else value
            _add(slots, held, printable(str(key)), "parameters_grad", 0)
    else:
        for key, value in found.items():
            state = _KEYS.get(key)
            if state is not None:
                _add(slots, value, state, state, 0)
        slots.sort(key=lambda slot: STATES.index(slot.state))
    return Entry(name, tuple(slots), settings_in(found.get("attributes")))


_COMPILED = {"_mutable_flags", "__parse_method__", "sequence_modified", "current_phase"}
"""Attributes that MindSpore adds to a module or an optimizer when it compiles it: they are no settings."""


def settings_in(found: object) -> dict[str, str] | None:
    """Returns settings as texts; None if they are not an object."""
    if not isinstance(found, dict):
        return None
    return {printable(str(key)): _text(value) for key, value in found.items() if key not in _COMPILED}


def _text(value: object) -> str:
    """Returns a value as text; a long one is cut, with a check sum of all of it."""
    text = printable(str(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... CRC32 {zlib.crc32(text.encode()):08x}"


def _add(slots: list[Slot], value: object, suffix: str, state: str, depth: int) -> None:
    if isinstance(value, dict):
        kind = value.get("type")
        if isinstance(kind, str) and ("shape" in value or "value" in value):
            slots.append(read_tensor(value, suffix, state) if "shape" in value else _scalar(kind, value, suffix, state))
            return
        items: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    elif value is None:
        return
    else:
        # msprobe describes process groups and the like by plain values.
        slots.append(_scalar(type(value).__name__, {"value": value}, suffix, state))
        return
    if depth == _DEEPEST:
        raise StateError(f"{suffix[:80]!r} is nested more than {_DEEPEST} deep.")
    for key, inner in items:
        _add(slots, inner, f"{suffix}.{printable(str(key))}", state, depth + 1)


def _scalar(kind: str, found: dict[str, Any], suffix: str, state: str) -> Slot:
    value = found.get("value")
    number = value if _is_number(value) else None
    dtype = f"<class {kind!r}>" if "." not in kind else kind
    return Slot.of(SlotForm(suffix, state, dtype, scalar=_text(value)), (number,) * 4)


def read_tensor(found: dict[str, Any], suffix: str, state: str) -> Slot:
    """Returns the slot of a tensor as dump.json describes it; raises StateError if its shape or a statistic is none."""
    get = found.get
    shape = found["shape"]
    values = (get("Max"), get("Min"), get("Mean"), get("Norm"))
    sizes = shape if isinstance(shape, list) and len(shape) <= _SIZES else [None]
    if not all(type(size) is int and 0 <= size < _MOST for size in sizes) or math.prod(sizes) >= _MOST:
        raise StateError(f"the shape of {suffix[:80]!r} is {shape!r:.60}; a list of sizes is needed.")
    for value in values:
        if type(value) is not float and value is not None and not _is_number(value):
            raise StateError(f"a statistic of {suffix[:80]!r} is not a number: {values!r:.80}.")
    md5, name, grad, parameter = get("md5"), get("data_name"), get("requires_grad"), get("parameter")
    form = SlotForm(
        suffix,
        state,
        printable(str(get("dtype"))),
        tuple(shape),
        grad if isinstance(grad, bool) else None,
        parameter=printable(parameter) if isinstance(parameter, str) else None,
    )
    is_sum = isinstance(md5, str) and md5.isprintable()
    return Slot.of(form, values, md5 if is_sum else None, name if isinstance(name, str) else None)


@lru_cache(4096)
def held_once(value: Any) -> Any:
    """Returns one object for equal forms, and for the numbers of a tensor that one call gives and others take."""
    return value


@lru_cache(256)
def _kind(dtype: str) -> str:
    return dtype.lower().rpartition(".")[2]


def _is_number(value: object) -> bool:
    """Returns whether `value` is a number that a float can hold."""
    return isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 1000)
