"""What rounding explains between two runs that need not be equal bit for bit: other tools or frameworks.

    difference = the larger of  |n - b| by root mean square / that of the tensors it is computed from
                          and   largest |n - b| / largest magnitude among them
    explained  = up to 4 units of the coarser type and 16 units of float32 a square root of the longest sum,
                 and up to 100 times what the inputs differ by

Of a summary the longest sum is that of all elements, as its mean and norm are sums too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from asd.dumps.compare.comparison import CallRows, ComparedRow
from asd.dumps.compare.metrics import NOT_A_NUMBER
from asd.dumps.compare.origin import Agrees
from asd.dumps.formats.slots import Slot

GAIN = 100.0
"""How much a sound operator may enlarge a difference: a softmax, or a difference of numbers that nearly cancel."""
_UNITS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-23, "float32": 2.0**-23}


TensorScale = tuple[float, float]
"""How large tensors are: the largest root mean square, and the largest magnitude of an element."""


def scale_of(slots: Sequence[Slot]) -> TensorScale:
    """Of the trusted run's floating-point tensors."""
    rms = magnitude = 0.0
    for slot in slots:
        top, low, _, norm = slot.values
        if slot.kind in _UNITS and None not in (top, low, norm):
            magnitude = max([magnitude, *(abs(each) for each in (top, low) if math.isfinite(each))])
            if math.isfinite(norm):
                rms = max(rms, abs(norm) / math.sqrt(math.prod(slot.shape) or 1))
            elif _overflowed(slot):
                rms = max(rms, abs(top), abs(low))  # it is at most that
    return rms, magnitude


def difference_of(
    tested: Slot, trusted: Slot, scale: TensorScale, euclidean: object = None, largest: object = None
) -> float | None:
    """How far apart two tensors are; None when that is not known, infinite when they can't be compared.

    Args:
        tested: Of the run under test.
        trusted: Of the trusted run.
        scale: Of the tensors it was computed from.
        euclidean: L2 norm of the difference, where the tensors are at hand.
        largest: Largest difference of an element, likewise.
    """
    size, (rms, magnitude) = math.prod(trusted.shape) or 1, scale
    if isinstance(euclidean, float) and isinstance(largest, float):
        return max(_ratio(euclidean / math.sqrt(size), rms), _ratio(largest, magnitude))
    pairs = list(zip(tested.values, trusted.values, strict=True))
    if any(None in pair for pair in pairs[:2]):
        return None
    found = [0.0]
    over = (magnitude, magnitude, rms, rms * math.sqrt(size))
    for (n, b), whole in zip(pairs, over, strict=True):
        if n is None or b is None or n == b or (math.isnan(n) and math.isnan(b)):
            continue
        if not (math.isfinite(n) and math.isfinite(b)):
            if _overflowed(tested) or _overflowed(trusted):
                continue
            return math.inf
        found.append(_ratio(abs(n - b), whole))
    return max(found)


def _overflowed(slot: Slot) -> bool:
    """Whether a mean or norm is infinite of finite elements: it was summed in a type that can't hold it."""
    top, low, *sums = slot.values
    infinite = any(each is not None and not math.isfinite(each) for each in sums)
    return infinite and all(each is not None and math.isfinite(each) for each in (top, low))


def _ratio(difference: float, whole: float) -> float:
    return difference / whole if whole else math.inf if difference else 0.0


def within_rounding(
    calls: Iterable[tuple[CallRows, Sequence[ComparedRow]]], carried: float = 0.0
) -> tuple[Agrees, str, float]:
    """Which rows rounding explains, what was taken for it, in words, and the most of that.

    A call may differ by what its own sums round, and by what its inputs differ already, enlarged by at most `GAIN`.
    What it is given may differ as it did when a call gave it: a sum that comes to nothing differs by all of its size.

    Args:
        calls: Each call with the rows of what it computed from.
        carried: The most that was taken for rounding in the step before, which the weights may differ by, enlarged.
    """
    agreed: dict[int, bool] = {}
    handed_on: set[object] = set()
    most, explained = carried, "nothing had to be taken for rounding"
    parted = False
    for call, taken in calls:
        pairs = [row for row in (*taken, *call.rows) if _is_pair(row)]
        scale = scale_of([row.trusted for row in pairs if row.trusted is not None])
        own = _allowed(pairs)
        known = [row for row in taken if _is_pair(row) and (row.state != "output" or agreed.get(id(row)))]
        given = [_distance(row, scale) for row in known]
        if len(known) == 1:  # of 1 / x a small x decides, however large the result is
            given += [_distance(known[0], _own_scale(known[0], scale))]
        grown = max([0.0, *(each for each in given if each is not None and math.isfinite(each))])
        for row in call.rows:
            if not _is_pair(row):
                continue  # frameworks write constants, and some shapes, differently
            apart = _distance(row, _own_scale(row, scale))
            if apart is None:
                continue
            before = most if row.state == "input" or not given else grown
            limit = max(own, GAIN * (carried if row.state == "parameters" else before))
            agreed[id(row)] = apart <= limit or (row.state == "input" and pair_of(row) in handed_on)
            handed_on |= {pair_of(row)} if agreed[id(row)] and row.state == "output" else set()
            parted = parted or not agreed[id(row)]
            if most < apart <= limit:
                most = apart
                if not parted:
                    explained = f"up to {apart:.2g} at {row.name} was taken for rounding (limit {limit:.2g})"
    return lambda row: agreed.get(id(row)), explained, most


def pair_of(row: ComparedRow) -> tuple[object, ...]:
    """What tells a difference from others."""
    return tuple((slot.shape, slot.md5 or repr(slot.values)) for slot in (row.trusted, row.tested) if slot is not None)


def _allowed(pairs: Sequence[ComparedRow]) -> float:
    """What rounding explains by itself in a call with these tensors."""
    slots = [slot for row in pairs for slot in (row.tested, row.trusted) if slot is not None]
    summary = not any(row.metrics is not None and isinstance(row.metrics.euclidean, float) for row in pairs)
    longest = max((math.prod(slot.shape) if summary else max(slot.shape, default=1) for slot in slots), default=1)
    coarsest = max((_UNITS.get(slot.kind, 0.0) for slot in slots), default=0.0)
    return 4 * coarsest + 16 * _UNITS["float32"] * math.sqrt(max(longest, 1))


def _own_scale(row: ComparedRow, scale: TensorScale) -> TensorScale:
    """What is given is measured by its own size, what is computed by that of all it was computed from."""
    if row.state in ("input", "parameters") and row.trusted is not None:
        return scale_of([row.trusted])
    return scale


def _is_pair(row: ComparedRow) -> bool:
    """Whether there is a tensor on both sides, of one shape."""
    ours, theirs = row.tested, row.trusted
    return (
        ours is not None
        and theirs is not None
        and ours.scalar is None is theirs.scalar
        and (ours.shape == theirs.shape)
    )


def _distance(row: ComparedRow, scale: TensorScale) -> float | None:
    """How far apart a row's tensors are; 0 where they are equal, None where that is not known."""
    assert row.tested is not None
    assert row.trusted is not None
    if row.same:
        return 0.0
    metrics = row.metrics
    if metrics is not None and metrics.max_abs == NOT_A_NUMBER:
        return math.inf
    found = (metrics.euclidean, metrics.max_abs) if metrics is not None else (None, None)
    return difference_of(row.tested, row.trusted, scale, *found)
