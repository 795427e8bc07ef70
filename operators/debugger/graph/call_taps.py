"""Taps around a call inside a compiled graph: of a function, of a method of Tensor, or of an operator of Python.

The compiler parses the functions below in place of the calls that `call_sites` found in the source of a network. What
turns out to be no tensor when types are known is left as it was written.
"""

from __future__ import annotations

import functools
from typing import Any

from mindspore import Tensor
from mindspore.ops import functional as F  # noqa: N812
from mindspore.ops.composite.base import Map
from mindspore.ops.primitive import constexpr

from asd.operators.debugger.hooks.graph_taps import (
    FORWARD_IN,
    FORWARD_OUT,
    GRADIENT_IN,
    GRADIENT_OUT,
    NOT_NESTED,
    delivery_of,
    gradient_tap,
    is_float_tensor,
    note,
)

__all__ = ["MOST_ITEMS", "OPERATORS", "functions", "new_taps", "reflected"]

MOST_ITEMS = 8
"""Tensors in a list, or results, that are looked at."""
PLACES = tuple(range(MOST_ITEMS))
reflected: set[int] = set()
"""Numbers of the taps of operators whose tensor is on the right: `__radd__`."""


@constexpr
def _is_reflected(number):
    reflected.add(number)
    return number


def new_taps(number: int, inputs: list[int], outputs: int) -> tuple[Any, ...]:
    """What the compiler has to know of one call.

    Args:
        number: Of the tap.
        inputs: For each positional argument, how many tensors it holds at most; 0 for one that is a tensor itself, -1
            for the second of two that are the same tensor.
        outputs: How many results have their gradient looked at.
    """
    before = tuple(_tap_of(number, place, count) for place, count in enumerate(inputs))
    after = tuple(gradient_tap(number, GRADIENT_OUT, place) for place in range(outputs))
    return number, before, after


def _tap_of(number: int, place: int, count: int) -> Any:
    if count < 0:
        return 0
    if count > 0:
        return tuple(gradient_tap(number, GRADIENT_IN, place, inner) for inner in range(count))
    return gradient_tap(number, GRADIENT_IN, place)


@functools.cache
def functions() -> dict[str, Any]:  # noqa: C901 - many functions around two objects, none of them complex
    """The functions that calls are replaced by, by the names they have in the changed source."""
    deliver, each = delivery_of(), Map()

    def look(tap, value, read):
        if is_float_tensor(F.typeof(value)):
            return tap(F.depend(value, read))
        return value

    def look_into(read, taps, value):
        if isinstance(taps, tuple):
            if isinstance(value, tuple):
                return look_at_first(look_at, taps, value, read)
            if isinstance(value, list):
                return list(look_at_first(look_at, taps, tuple(value), read))
            return value
        return look(taps, value, read)

    def look_at(read, tap, value):
        return look(tap, value, read)

    # The compiler may drop items of a tuple that a loop makes, so what is mapped is preferred.
    def look_at_first(function, taps, values, read):
        if len(values) > len(taps):
            return (*each(F.partial(function, read), taps, values[: len(taps)]), *values[len(taps) :])
        return each(F.partial(function, read), taps[: len(values)], values)

    # The identities come after all inputs were read: so the gradients of a tensor that goes to several calls are summed
    # in the order in which they are without taps.
    def before(taps, inputs, read):
        if len(inputs) == 0 or len(taps) == 0:
            return inputs
        if len(inputs) == 1:
            return (look_into(read, taps[0], inputs[0]),)
        if len(inputs) == 2 and len(taps) == 2:
            first = look_into(read, taps[0], inputs[0])
            if isinstance(taps[1], int):
                return (first, first)
            return (first, look_into(read, taps[1], inputs[1]))
        return look_at_first(look_into, taps, inputs, read)

    def read_one(number, place, value, read):
        if isinstance(value, Tensor):
            return F.depend(deliver(value, number, FORWARD_IN, place, NOT_NESTED), read)
        if isinstance(value, (tuple, list)) and len(value) > 0:
            return read_items(number, place, value, read)
        if F.isconstant(value):
            return (read, note(number, place, NOT_NESTED, value))
        return read

    def read_items(number, place, values, read):
        for inner, value in enumerate(values):
            if isinstance(value, Tensor):
                read = F.depend(deliver(value, number, FORWARD_IN, place, inner), read)
            elif F.isconstant(value):
                read = (read, note(number, place, inner, value))
        return read

    def read_all(number, inputs):
        read = ()
        for place, value in enumerate(inputs):
            read = read_one(number, place, value, read)
        return read

    def read_keywords(number, keywords, read):
        for name in keywords:
            read = read_one(number, name, keywords[name], read)
        return read

    def after(number, backs, output, read):
        if isinstance(output, Tensor):
            read = deliver(F.depend(output, read), number, FORWARD_OUT, 0, NOT_NESTED)
            return look_at_output(backs[0], output, read)
        if isinstance(output, (tuple, list)):
            return several(number, backs, output, read)
        return output

    def look_at_output(back, value, read):
        value = F.depend(value, read)
        if is_float_tensor(F.typeof(value)):
            return back(value)
        return value

    def deliver_output(number, place, value):
        if isinstance(value, Tensor):
            return deliver(value, number, FORWARD_OUT, place, NOT_NESTED)
        return ()

    def look_at_result(read, back, value):
        if isinstance(value, Tensor):
            return look_at_output(back, value, read)
        return value

    def several(number, backs, output, read):
        count = len(output)
        if count == 0 or count > len(PLACES):
            return output
        read = (read, each(F.partial(deliver_output, number), PLACES[:count], tuple(output)))
        if isinstance(output, list) or count > len(backs):
            return each(F.partial(hold, read), output)
        return each(F.partial(look_at_result, read), backs[:count], output)

    def hold(read, value):
        if isinstance(value, Tensor):
            return F.depend(value, read)
        return value

    def call(site, function, *inputs):
        read = read_all(site[0], inputs)
        return after(site[0], site[2], function(*before(site[1], inputs, read)), read)

    def call_with_keywords(site, function, *inputs, **keywords):
        read = read_keywords(site[0], keywords, read_all(site[0], inputs))
        return after(site[0], site[2], function(*before(site[1], inputs, read), **keywords), read)

    def method(site, name, *inputs):
        value = inputs[0]
        if isinstance(value, Tensor):
            read = read_all(site[0], inputs)
            seen = before(site[1], inputs, read)
            return after(site[0], site[2], getattr(seen[0], name)(*seen[1:]), read)
        return getattr(value, name)(*inputs[1:])

    def method_with_keywords(site, name, *inputs, **keywords):
        value = inputs[0]
        if isinstance(value, Tensor):
            read = read_keywords(site[0], keywords, read_all(site[0], inputs))
            seen = before(site[1], inputs, read)
            return after(site[0], site[2], getattr(seen[0], name)(*seen[1:], **keywords), read)
        return getattr(value, name)(*inputs[1:], **keywords)

    def binary(site, operator, left, right):
        if isinstance(left, Tensor):
            read = read_all(site[0], (left, right))
            seen = before(site[1], (left, right), read)
            return after(site[0], site[2], operator(seen[0], seen[1]), read)
        if isinstance(right, Tensor):
            read = read_all(site[0], (right, left))
            seen = before(site[1], (right, left), read)
            return after(_is_reflected(site[0]), site[2], operator(seen[1], seen[0]), read)
        return operator(left, right)

    def unary(site, operator, value):
        if isinstance(value, Tensor):
            read = read_all(site[0], (value,))
            return after(site[0], site[2], operator(*before(site[1], (value,), read)), read)
        return operator(value)

    return {
        "asd_call": call, "asd_call_with_keywords": call_with_keywords, "asd_method": method,
        "asd_method_with_keywords": method_with_keywords, "asd_binary": binary, "asd_unary": unary,
    }  # fmt: skip


def _add(a, b):
    return a + b


def _sub(a, b):
    return a - b


def _mul(a, b):
    return a * b


def _div(a, b):
    return a / b


def _floordiv(a, b):
    return a // b


def _mod(a, b):
    return a % b


def _pow(a, b):
    return a**b


def _matmul(a, b):
    return a @ b


def _and(a, b):
    return a & b


def _or(a, b):
    return a | b


def _xor(a, b):
    return a ^ b


def _eq(a, b):
    return a == b


def _ne(a, b):
    return a != b


def _lt(a, b):
    return a < b


def _le(a, b):
    return a <= b


def _gt(a, b):
    return a > b


def _ge(a, b):
    return a >= b


def _neg(a):
    return -a


def _invert(a):
    return ~a


def _item(a, index):
    return a[index]


OPERATORS = {
    "Add": ("__add__", "__radd__", _add), "Sub": ("__sub__", "__rsub__", _sub), "Mult": ("__mul__", "__rmul__", _mul),
    "Div": ("__truediv__", "__rtruediv__", _div), "FloorDiv": ("__floordiv__", "__rfloordiv__", _floordiv),
    "Mod": ("__mod__", "__rmod__", _mod), "Pow": ("__pow__", "__rpow__", _pow),
    "MatMult": ("__matmul__", "__rmatmul__", _matmul), "BitAnd": ("__and__", "__rand__", _and),
    "BitOr": ("__or__", "__ror__", _or), "BitXor": ("__xor__", "__rxor__", _xor), "Eq": ("__eq__", "__eq__", _eq),
    "NotEq": ("__ne__", "__ne__", _ne), "Lt": ("__lt__", "__gt__", _lt), "LtE": ("__le__", "__ge__", _le),
    "Gt": ("__gt__", "__lt__", _gt), "GtE": ("__ge__", "__le__", _ge), "USub": ("__neg__", "", _neg),
    "Invert": ("__invert__", "", _invert), "Subscript": ("__getitem__", "", _item),
}  # fmt: skip
"""By the class of ast: the method of a tensor on the left, that of one on the right, and the operator."""
