"""Bounds on what rounding explains between two runs of different tools, machines or frameworks.

    difference = the larger of  root mean square of n - b / that of the result or of its operands
                          and   largest |n - b| / largest magnitude among them
    own        = 4 units of the coarser type + 16 units of float32 * square root of the longest sum
    bound      = the largest of  own,  4 times the difference of the operands,  and 0.05 or 100 times it if smaller

A forward result is measured by its operands and results, a gradient by the gradients of its call alone: activations do
not hide it. A result that is a multiple of the other is wrong at any size of the factor, as rounding has no direction.
In a summary the longest sum is that of all elements, as its mean and norm are sums too.
"""

import math
import re
from collections.abc import Iterable, Sequence

from asd.dumps.compare.comparison import CallRows, ComparedRow
from asd.dumps.compare.metrics import NOT_A_NUMBER
from asd.dumps.formats.slots import Slot, held_once, split_name

GAIN, ALWAYS, MOST = 100.0, 4.0, 0.05
"""Growth of a difference in a sound operator, such as a softmax: `ALWAYS` at any size, `GAIN` up to `MOST`."""
_UNITS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-23, "float32": 2.0**-23}
_UNITS |= {"complex64": 2.0**-23, "complex128": 2.0**-23}
_REDUCED = 4 * 2.0**-10  # relative error of a float32 product that is computed in TF32 or HF32
_PRODUCTS = re.compile(
    r"^(Cell|Module)\.|matmul|linear|dense|conv|mm$|einsum|attention|mv$|[^a-z]dot$|tensordot|lstm|gru|rnn",
    re.IGNORECASE,
)
_FEW, _COLLINEAR, _COLLINEAR_OF_FEW = 8, 10.0, 100.0
"""Least distance of a multiple's factor from 1, relative to the remaining difference; larger for few elements."""
_FITS = 1e-3
_FILL = 1e9  # magnitude from which an operand is a mask; its fill value is no scale for other numbers

TensorScale = tuple[float, float]
"""Scale of tensors: the largest root mean square, and the largest magnitude of an element."""


def scale_of(slots: Sequence[Slot]) -> TensorScale:
    """Returns the scale of the trusted run's floating-point tensors."""
    rms = magnitude = 0.0
    for slot in slots:
        top, low, mean, norm = slot.values
        if slot.kind not in _UNITS:
            continue
        if top is low is norm is None is not mean:
            top = mean  # a list of summaries may have nothing else
        magnitude = max([magnitude, *(abs(each) for each in (top, low) if each is not None and math.isfinite(each))])
        if norm is not None and math.isfinite(norm):
            rms = max(rms, abs(norm) / math.sqrt(math.prod(slot.shape) or 1))
        elif top is not None and low is not None and (norm is None or _overflowed(slot)):
            rms = max(rms, abs(top), abs(low))  # it is at most that
    return rms, magnitude


def difference_of(
    tested: Slot, trusted: Slot, scale: TensorScale, euclidean: object = None, largest: object = None
) -> float | None:
    """Returns the difference of two tensors; None when it is not known, infinite when they cannot be compared.

    Args:
        tested: Tensor of the run under test.
        trusted: Tensor of the trusted run.
        scale: Scale of the tensors that it was computed from.
        euclidean: L2 norm of the difference, where the tensors are at hand.
        largest: Largest difference of an element, likewise.
    """
    size, (rms, magnitude) = math.prod(trusted.shape) or 1, scale
    if isinstance(euclidean, float) and isinstance(largest, float):
        return max(_ratio(euclidean / math.sqrt(size), rms), _ratio(largest, magnitude))
    pairs = list(zip(tested.values, trusted.values, strict=True))
    if all(None in pair for pair in pairs):
        return None
    found = [0.0]
    over = (magnitude, magnitude, rms or magnitude, (rms or magnitude) * math.sqrt(size))
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
    """Returns whether a mean or norm of finite elements is infinite: the type of its sum could not hold it."""
    top, low, *sums = slot.values
    infinite = any(each is not None and not math.isfinite(each) for each in sums)
    return infinite and all(each is not None and math.isfinite(each) for each in (top, low))


def _ratio(difference: float, whole: float) -> float:
    return difference / whole if whole else math.inf if difference else 0.0


class Rounding:
    """Sets which rows of a comparison rounding explains, in their `agrees`.

    A call may differ by what its own sums round, and by what it is given differs already, enlarged. What it is given
    may differ as it did when a call gave it: a sum that comes to nothing differs by all of its size.

    Args:
        calls: Each call with the rows of what it computed from.
        carried: The most that was taken for rounding in the step before, which the weights may differ by, enlarged.
        reduced: Whether products of float32 may have been computed in TF32 or HF32 on one side; None: not known.
    """

    def __init__(
        self, calls: Iterable[tuple[CallRows, Sequence[ComparedRow]]], carried: float, *, reduced: bool | None
    ) -> None:
        self.carried, self._reduced = carried, reduced  # the most that was taken for rounding
        self.largest: ComparedRow | None = None  # row that comes nearest to its bound, None where all are equal
        self._nearest = 0.0
        # rows that TF32 or HF32 would explain and rounding does not, where the precision is unknown
        self.unclear: list[ComparedRow] = []
        self._handed_on: set[int] = set()
        self._weights = carried
        for call, taken in calls:
            self._add(call, taken)

    def _add(self, call: CallRows, taken: Sequence[ComparedRow]) -> None:
        is_forward = split_name(call.name)[1] not in ("backward", "parameters_grad")
        pairs = [row for row in (*taken, *call.rows) if _is_pair(row)]
        # Gradients are measured by gradients: what the forward call took and gave is not among the rows of a backward.
        foreign = {id(row) for row in pairs if not is_forward and ".forward." in row.name}
        scale = scale_of([row.trusted for row in pairs if row.trusted is not None and id(row) not in foreign])
        own = _allowed(pairs)
        known = [row for row in taken if _is_pair(row) and (row.state != "output" or row.agrees is not False)]
        given = [self._apart(row, _own_scale(row, None if id(row) in foreign else scale)) for row in known]
        grown = max([0.0, *(each for each in given if each is not None and math.isfinite(each))])
        for row in call.rows:
            if _is_pair(row):  # frameworks write constants, and some shapes, differently
                self._judge(call, row, scale, own, grown if given else self.carried)

    def _judge(self, call: CallRows, row: ComparedRow, scale: TensorScale, own: float, grown: float) -> None:
        row.difference = apart = self._apart(row, _own_scale(row, scale))
        before = self._weights if row.state == "parameters" else self.carried if row.state == "input" else grown
        row.bound = bound = held_once(max(own, ALWAYS * before, min(GAIN * before, MOST)))
        if apart is None:
            row.agrees = None if row.same is False else row.same
            return
        if not _is_float(row):  # an index or mask has no scale, and may change where numbers nearly are alike
            row.difference = row.bound = None
            row.agrees = None if grown else not apart
            return
        factor = _factor_of(row)
        if factor > bound:
            row.difference = apart = max(apart, factor)
        agrees = apart <= bound or (row.state == "input" and pair_of(row) in self._handed_on)
        is_reduced = factor <= _REDUCED and self._may_be_reduced(call, row)  # a larger multiple has another cause
        wide = max(bound, _REDUCED, ALWAYS * _REDUCED * bool(before)) if is_reduced else bound
        if not agrees and apart <= wide:
            agrees, row.bound = True, wide
            if self._reduced is None:
                self.unclear.append(row)
        row.agrees = agrees
        if agrees:
            self._take(row, apart, row.bound or bound)

    def _take(self, row: ComparedRow, apart: float, bound: float) -> None:
        """Records a row that is explained: its difference may be handed on, and be enlarged by others."""
        if row.state == "output" and apart:
            self._handed_on.add(pair_of(row))
        self.carried = max(self.carried, apart) if apart <= bound else self.carried
        if apart / bound > self._nearest:
            self.largest, self._nearest = row, apart / bound

    def _may_be_reduced(self, call: CallRows, row: ComparedRow) -> bool:
        is_result = row.state in ("output", "parameters_grad") and row.trusted is not None
        is_single = is_result and row.trusted.kind == "float32"  # type: ignore[union-attr]
        return self._reduced is not False and is_single and bool(_PRODUCTS.search(split_name(call.name)[0]))

    def _apart(self, row: ComparedRow, scale: TensorScale) -> float | None:
        """Returns how far apart a row's tensors are; 0 where they are equal, None where that is not known."""
        assert row.tested is not None
        assert row.trusted is not None
        if row.same:
            return 0.0
        metrics = row.metrics
        if metrics is not None and metrics.max_abs == NOT_A_NUMBER:
            return math.inf
        found = (metrics.euclidean, metrics.max_abs) if metrics is not None else (None, None)
        if metrics is not None and _is_float(row):  # statistics with Inf or NaN are no scale
            scale = max(scale[0], metrics.scale[0]), max(scale[1], metrics.scale[1])
        apart = difference_of(row.tested, row.trusted, scale, *found)
        # Different check sums with equal statistics: something differs, by an unknown amount.
        return None if apart == 0.0 and row.tested.md5 is not None is not row.trusted.md5 else apart


def _factor_of(row: ComparedRow) -> float:
    """Returns how far from 1 the factor is where one tensor is a multiple of the other; 0 where it is none."""
    metrics, trusted, tested = row.metrics, row.trusted, row.tested
    if trusted is None or tested is None or row.same or trusted.kind not in _UNITS:
        return 0.0
    if metrics is not None and isinstance(metrics.max_abs, float):
        factor, beside = metrics.factor, metrics.beside
    else:
        factor, beside = _factor_of_statistics(tested, trusted)
    if factor is None or math.prod(trusted.shape) < 2:
        return 0.0
    most = _COLLINEAR if math.prod(trusted.shape) >= _FEW else _COLLINEAR_OF_FEW
    return abs(factor - 1) if abs(factor - 1) > most * beside else 0.0


def _factor_of_statistics(tested: Slot, trusted: Slot) -> tuple[float | None, float]:
    """Returns the ratio of norms, signed to fit the largest and smallest element, and the remaining misfit."""
    (top, low, mean, norm), (mine, least, middle, other) = trusted.values, tested.values
    known = [each for each in (top, low, mean, norm, mine, least, middle, other) if each is not None]
    if len(known) < len(trusted.values) * 2 or not all(map(math.isfinite, known)) or not norm or top == low:
        return None, 0.0
    size, found = max(abs(top), abs(low)), []
    for factor in (other / norm, -other / norm):
        high, deep = sorted((factor * top, factor * low), reverse=True)
        apart = max(abs(high - mine), abs(deep - least), abs(factor * mean - middle))
        found.append((apart / size, factor))
    # Where largest and smallest are nearly opposite both signs fit: the sign is told where one does not.
    fits = max(_FITS, *(ALWAYS * _UNITS.get(slot.kind, 0.0) for slot in (tested, trusted)))
    beside, factor = found[0] if found[0][0] < fits else min(found)
    return factor, beside


def pair_of(row: ComparedRow) -> int:
    """Returns a hash that identifies a difference."""
    return hash(tuple((slot.shape, slot.md5 or slot.packed) for slot in (row.trusted, row.tested) if slot is not None))


def _allowed(pairs: Sequence[ComparedRow]) -> float:
    """Returns the difference that rounding alone explains in a call with these tensors."""
    slots = [slot for row in pairs for slot in (row.tested, row.trusted) if slot is not None]
    summary = not any(row.metrics is not None and isinstance(row.metrics.euclidean, float) for row in pairs)
    longest = max((math.prod(slot.shape) if summary else max(slot.shape, default=1) for slot in slots), default=1)
    coarsest = max((_UNITS.get(slot.kind, 0.0) for slot in slots), default=0.0)
    return 4 * coarsest + 16 * _UNITS["float32"] * math.sqrt(max(longest, 1))


def _own_scale(row: ComparedRow, scale: TensorScale | None) -> TensorScale:
    """Returns the scale of a row: its own for an operand, that of all operands for a result."""
    if scale is None or row.trusted is None or row.state in ("input", "parameters") or scale[1] >= _FILL:
        return scale_of([] if row.trusted is None else [row.trusted])
    return scale


def _is_float(row: ComparedRow) -> bool:
    return row.trusted is not None and row.trusted.kind in _UNITS


def _is_pair(row: ComparedRow) -> bool:
    """Returns whether both sides have a tensor, of the same shape."""
    ours, theirs = row.tested, row.trusted
    if ours is None or theirs is None:
        return False
    return ours.scalar is None is theirs.scalar and ours.shape == theirs.shape
