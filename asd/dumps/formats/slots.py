"""The rows of a dump: one slot for each tensor or scalar an operator took or gave."""

import re
import struct
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from asd.errors import StateError

STATES = ("input", "parameters", "output", "parameters_grad")
"""The kinds of slots, in the order of the rows of one operator."""

_KEYS = {
    "input_args": "input",
    "input": "input",
    "input_kwargs": "input",
    "parameters": "parameters",
    "output": "output",
}
_SCALARS = {"int", "float", "bool", "str", "slice", "complex", "ellipsis", "mindspore.dtype", "torch.dtype"}
_DIRECTIONS = ("forward", "backward", "parameters_grad")
_RANDOM = re.compile(
    r"random|^rand|dropout|bernoulli|multinomial|^uniform_?$|^uniform(int|real)$|(log|standard|truncated)_?normal"
    r"|^normal_?$|^poisson$|gumbel|^(standard_?)?laplace$|^gamma$|rrelu|^exponential_?$|cauchy|candidate_?sampler"
    r"|choice_?with_?mask|^shuffle$",
    re.IGNORECASE,
)
_DEEPEST = 20
_NUMBERS = struct.Struct("4d")


class Slot(msgspec.Struct, gc=False):
    """One tensor or scalar of one call.

    Attributes:
        suffix: Its place in the call: `input.0`, `output.1.2`, `parameters.weight`; for the gradients of parameters
            the parameter's name alone.
        state: One of `STATES`.
        dtype: As the file writes it (`Float32`, `torch.float32`); `<class 'int'>` for a scalar.
        shape: Empty for a scalar and for a tensor of no dimension.
        packed: `values`, as bytes if all are floats: a dump has very many.
        md5: The CRC32 of the bytes as the file writes it, or None.
        data_name: Bare name of the file with the tensor, or None.
        requires_grad: As in the file, or None.
        scalar: The value as text, if it is not a tensor; else None.
        parameter: The name of the weight, if the tensor is one and the file names it.
    """

    suffix: str
    state: str
    dtype: str
    shape: tuple[int, ...] = ()
    packed: bytes | tuple[Any, Any, Any, Any] = (None, None, None, None)
    md5: str | None = None
    data_name: str | None = None
    requires_grad: bool | None = None
    scalar: str | None = None
    parameter: str | None = None

    def __post_init__(self) -> None:
        """Packs the numbers."""
        if isinstance(self.packed, tuple) and all(type(each) is float for each in self.packed):
            self.packed = _one(_NUMBERS.pack(*self.packed))

    @property
    def values(self) -> tuple[Any, Any, Any, Any]:
        """Maximum, minimum, mean and L2 norm; None where the file has none. Four times the value of a number."""
        return _NUMBERS.unpack(self.packed) if isinstance(self.packed, bytes) else self.packed

    @property
    def kind(self) -> str:
        """The type of its elements in the words of every framework: `float32`."""
        return self.dtype.lower().rpartition(".")[2]


class Entry(msgspec.Struct, gc=False):
    """One direction of one call of an operator.

    Attributes:
        name: Its name in the dump, such as `Mint.add.0.forward` or `Cell.fc.Dense.forward.0`.
        slots: Its inputs and outputs, in the order of `STATES`.
        settings: Arguments that an operator or a module was created with; None if the file has none.
    """

    name: str
    slots: tuple[Slot, ...]
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


def printable(text: str) -> str:
    r"""Returns the text with what would move a terminal's cursor written as escapes.

    >>> printable("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return text if text.isprintable() else text.encode("unicode_escape", "backslashreplace").decode()


def read_entry(name: str, found: object) -> Entry:
    """Returns the entry that one member of `data` describes; keys it does not know are passed over.

    Raises:
        StateError: A part of it has another form than a dump has.
    """
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
    return Entry(sys.intern(name), tuple(slots), settings_in(found.get("attributes")))


def settings_in(found: object) -> dict[str, str] | None:
    """Returns settings as texts; None if they are not an object."""
    if not isinstance(found, dict):
        return None
    return {printable(str(key)): printable(str(value)[:200]) for key, value in found.items()}


def _add(slots: list[Slot], value: object, suffix: str, state: str, depth: int) -> None:
    if isinstance(value, dict):
        kind = value.get("type")
        if isinstance(kind, str) and ("shape" in value or kind in _SCALARS):
            slots.append(read_tensor(value, suffix, state) if "shape" in value else _scalar(kind, value, suffix, state))
            return
        items: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    elif value is None:
        return
    else:
        raise StateError(f"{suffix[:80]!r} holds {value!r:.40}, where a tensor, a scalar, a list or null may stand.")
    if depth == _DEEPEST:
        raise StateError(f"{suffix[:80]!r} is nested more than {_DEEPEST} deep.")
    for key, inner in items:
        _add(slots, inner, f"{suffix}.{printable(str(key))}", state, depth + 1)


def _scalar(kind: str, found: dict[str, Any], suffix: str, state: str) -> Slot:
    value = found.get("value")
    number = value if _is_number(value) else None
    dtype = f"<class {kind!r}>" if "." not in kind else kind
    return Slot(sys.intern(suffix), state, sys.intern(dtype), packed=(number,) * 4, scalar=printable(str(value)[:200]))


def read_tensor(found: dict[str, Any], suffix: str, state: str) -> Slot:
    """Returns the slot of a tensor as dump.json describes it; raises StateError if its shape or a statistic is none."""
    get = found.get
    shape = found["shape"]
    values = (get("Max"), get("Min"), get("Mean"), get("Norm"))
    if not isinstance(shape, list):
        raise StateError(f"the shape of {suffix[:80]!r} is {shape!r:.60}; a list of sizes is needed.")
    for size in shape:
        if type(size) is not int or size < 0:
            raise StateError(f"the shape of {suffix[:80]!r} is {shape!r:.60}; a list of sizes is needed.")
    for value in values:
        if type(value) is not float and value is not None and not _is_number(value):
            raise StateError(f"a statistic of {suffix[:80]!r} is not a number: {values!r:.80}.")
    md5, data_name, requires_grad, parameter = get("md5"), get("data_name"), get("requires_grad"), get("parameter")
    return Slot(
        sys.intern(suffix),
        state,
        sys.intern(printable(str(get("dtype")))),
        _one(tuple(shape)),
        values,
        md5 if isinstance(md5, str) and md5.isprintable() else None,
        data_name if isinstance(data_name, str) else None,
        requires_grad if isinstance(requires_grad, bool) else None,
        parameter=printable(parameter) if isinstance(parameter, str) else None,
    )


@lru_cache(4096)
def _one(value: Any) -> Any:
    """Returns one object for equal shapes, and for the numbers of a tensor that one call gives and others take."""
    return value


def _is_number(value: object) -> bool:
    """Returns whether `value` is a number that a float can hold."""
    return isinstance(value, float) or (isinstance(value, int) and value.bit_length() <= 1000)
