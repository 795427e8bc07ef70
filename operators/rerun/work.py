"""A known-answer test: one operator on known numbers, compared with its answer on the device.

Sums are of integers, which every order of summation makes the same; so are elementwise operators, so that no way of
rounding matters. Where there is no exact form an answer may be off by what rounding explains. Equal elements are
counted, in integers, and each answer has some that are wrong on purpose: a device that can't compare fails its test.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.ops import operations as P  # noqa: N812

Array = Any
BLOCK = (63, 65)
"""Shape of the numbers that vector operators work on, which are repeated; odd, so that each number meets all cores."""
_LEAST, _MOST, _MOST_VECTOR = 6 * 4095, 1 << 23, 1 << 19  # elements of a result
_SHARE, _TERMS, _NARROWEST, _TALLEST = 32, 1024, 128, 4096
_ROUNDING = 2.0**-10  # of a result's size; all that devices approximate is nearer
_FEW = 2.0**-5  # of a product whose partial sums are rounded to half precision
IN_HALF = ("products of float32", "Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")  # beyond float16
_TURNS = 8  # in which products have different operands
_CAST, _EQUAL, _WITHIN, _ABS, _SUB = P.Cast(), P.Equal(), P.LessEqual(), P.Abs(), P.Sub()
_FILL, _NONE, _ONE = P.MaskedFill(), Tensor([0], ms.int32), Tensor(1, ms.int32)  # a cast takes longer on a CPU
_MUL, _ADD, _SUM, _ROWS, _STACK, _TILE = P.Mul(), P.Add(), P.ReduceSum(), P.ReduceSum(True), P.Stack(), P.Tile()


class Sizes(NamedTuple):
    """Sizes of known-answer tests: of a product, and how often the numbers of vector operators are repeated."""

    rows: int  # an odd multiple of 3, so that tiles end elsewhere than those of the device
    columns: int
    terms: int
    copies: int

    @classmethod
    def of(cls, shapes: Sequence[Sequence[int]]) -> Sizes:
        """Returns the sizes for a training with weights of these shapes, each of two dimensions or more."""
        sides = [(shape[0], math.prod(shape[1:])) for shape in shapes]
        share = sum(map(math.prod, sides)) // _SHARE
        elements = max(_LEAST, min(_MOST, share))
        largest = max(sides, key=math.prod)
        columns = min(max(192, *largest), elements // _NARROWEST)
        rows = min(elements // columns, _TALLEST) // 6 * 6 - 3
        terms = min(max(64, min(largest)), _TERMS)
        return cls(rows, columns, terms, max(2, min(share, _MOST_VECTOR) // math.prod(BLOCK)))


class KnownAnswer(NamedTuple):
    """Result of a known-answer test, on the device."""

    found: Tensor
    expected: Tensor  # in float32; smaller where it repeats itself
    planted: Array  # mask of the elements of `expected`, or of its rows, that are wrong on purpose; on the host
    bound: Tensor | None = None  # deviation that rounding explains; None where the answer is exact

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the comparison."""
        return np.broadcast_shapes(self.found.shape, self.expected.shape)

    @property
    def equal(self) -> int:
        """Number of elements that a sound device counts as equal."""
        size = math.prod(self.shape)
        return int(size - size // self.planted.size * self.planted.sum())

    def compare(self) -> tuple[Tensor, Tensor]:
        """Returns the mask of equal elements and their number, both on the device."""
        found = self.found if self.found.dtype == ms.float32 else _CAST(self.found, ms.float32)
        if self.bound is None:
            mask = _EQUAL(found, self.expected)
        else:
            mask = _WITHIN(_ABS(_SUB(found, self.expected)), self.bound)
        return mask, _SUM(_FILL(_NONE, mask, _ONE))


class Work(NamedTuple):
    """Known-answer test of one operator on numbers that are repeated along the first dimension."""

    name: str
    operands: str  # letters of `DeviceUnderTest`
    compute: Callable[..., Any]
    answer_of: Callable[..., Any]  # the same function in float64
    size: Callable[..., Any] | bool = False  # to which rounding is relative; True: the answer's own; else it is exact
    sums: bool = False  # over the first dimension
    group: str = ""  # those that a device lacks altogether if it lacks the first

    def answer(self, device: DeviceUnderTest, turn: int) -> KnownAnswer:
        """Computes; the numbers are the same in each `turn`."""
        found = self.compute(*map(device.operand, self.operands))
        return device.keep(self.name, lambda: self._known(device))._replace(found=found)  # type: ignore[no-any-return]

    def _known(self, device: DeviceUnderTest) -> KnownAnswer:
        operands = [device.on_host(each, all_copies=self.sums) for each in self.operands]
        answer = np.array(self.answer_of(*operands), np.float32)
        planted = np.zeros(answer.shape, bool)
        planted.flat[0] = True
        if not self.size:
            answer.flat[0] = np.nextafter(answer.flat[0], np.float32(np.inf)) if answer.flat[0] else 1
            return KnownAnswer(Tensor(0.0), Tensor(answer), planted)
        size = answer if self.size is True else self.size(*operands) + np.zeros(answer.shape)
        bound = (_ROUNDING * np.abs(size) + 1e-30).astype(np.float32)
        answer.flat[0] += 4 * bound.flat[0] + 1
        return KnownAnswer(Tensor(0.0), Tensor(answer), planted, Tensor(bound))


class Factors(NamedTuple):
    """Type of a product, its largest integers, its most terms, and the powers of two that scale rows and columns."""

    type: Any
    left: int
    right: int  # of a column of the right operand; each column is multiplied by another one, up to `scale`
    scale: int
    terms: int
    powers: tuple[int, int]
    long: bool = False  # too many terms where a device rounds partial sums to the type: all positive, and near is right


class Product(NamedTuple):
    """Known-answer test of a product whose right operand has proportional columns, so that vector operators know it."""

    name: str
    factors: Factors
    compute: Callable[[Tensor, Tensor], Tensor]
    group: str

    def answer(self, device: DeviceUnderTest, turn: int) -> KnownAnswer:
        """Computes, with another right operand in each of some turns."""
        kind, rows = self.factors, device.sizes.rows
        a, column, sums, few, *all_scales = device.keep(kind, lambda: self._operands(device.sizes))
        scales = all_scales[turn % _TURNS]
        b, expected = _MUL(column, scales), _MUL(sums, scales)
        found = self.compute(a, b if kind.type == ms.float32 else _CAST(b, kind.type))
        bound = _MUL(expected, few) if kind.long else None
        return KnownAnswer(found, expected, np.arange(rows).reshape((rows, 1)) == 0, bound)

    def _operands(self, sizes: Sizes) -> list[Tensor]:
        kind, random = self.factors, np.random.default_rng(sizes.rows)
        rows, columns, terms = sizes.rows, sizes.columns, min(sizes.terms, self.factors.terms)

        def whole(most: int, *shape: int) -> Array:
            return random.integers(1, most + 1, shape) * (1 if kind.long else random.choice((-1, 1), shape))

        def powers(*shape: int) -> Array:
            return np.exp2(random.integers(kind.powers[0], kind.powers[1] + 1, shape))

        row_scales, planted = powers(rows, 1), np.zeros((rows, 1))
        planted[0] = row_scales[0] * (2.0**26 if kind.long else 1)
        all_scales = [whole(kind.scale, 1, columns) * powers(1, columns) for _ in range(_TURNS)]
        made = (whole(kind.left, rows), row_scales, whole(kind.right, terms, 1), planted, np.array(_FEW), *all_scales)
        pool, scale, column, fault, few, *others = (Tensor(each.astype(np.float32)) for each in made)
        a = _MUL(_TILE(pool, (terms,)).reshape((rows, terms)), scale)
        sums = _ADD(_ROWS(_MUL(a, column.reshape((1, terms))), 1), fault)
        return [_CAST(a, kind.type), column, sums, few, *others]


Test = Work | Product


class Mismatch(NamedTuple):
    """A wrong answer: its test, the number of wrong elements, and their place and first value in words."""

    name: str
    wrong: int
    words: str


class DeviceUnderTest:
    """Known-answer tests of one device; operands and answers are made once and kept on it.

    Args:
        sizes: Sizes of the tests.
        blocks: Operands of vector operators by letter, without the first dimension, along which those of small letters
            are repeated.

    Attributes:
        absent: Reasons by test, or group of tests, that the device cannot compute.
    """

    def __init__(self, sizes: Sizes, blocks: Mapping[str, Array]) -> None:
        self.sizes, self._blocks = sizes, blocks
        self._kept: dict[Any, Any] = {}
        self._tried: set[str] = set()
        self._wrong: dict[tuple[int, ...], Array] = {}  # elements, by shape: products have one, and most others
        self.absent: dict[str, str] = {}

    def keep(self, key: Any, make: Callable[[], Any]) -> Any:
        """Returns what `make` returned the first time for this key, or after the last finding."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def operand(self, letter: str) -> Tensor:
        """Returns an operand on the device."""
        block, copies = self._blocks[letter], self.sizes.copies
        tiled = lambda: _TILE(Tensor(block[None]), (copies,) + (1,) * block.ndim)  # noqa: E731
        return self.keep(letter, tiled if letter.islower() else lambda: Tensor(block))

    def on_host(self, letter: str, *, all_copies: bool) -> Array:
        """Returns an operand in float64, repeated once, or as often as on the device."""
        block = self._blocks[letter]
        block = block.astype(np.float64) if block.dtype == np.float32 else block
        copies = self.sizes.copies if all_copies else 1
        return np.broadcast_to(block, (copies, *block.shape)) if letter.islower() else block

    def lacks(self, test: Test) -> bool:
        """Returns whether the device is known not to compute a test."""
        return test.name in self.absent or test.group in self.absent

    def test(self, tests: Iterable[Test], turn: int) -> list[Mismatch]:
        """Runs tests, and reads the numbers of equal elements once; an operator's first time is read by itself."""
        done = []
        if not self._tried and computes_in_half():
            self.absent |= dict.fromkeys(IN_HALF, "the device computes them in float16, by its settings or always")
        for test in tests:
            if self.lacks(test):
                continue
            try:
                answer = test.answer(self, turn)
                mask, count = answer.compare()
                if test.name not in self._tried:
                    count.asnumpy()
            except Exception as error:  # of any kind, as an operator or MindSpore's queue of them raises it
                if test.name in self._tried:
                    raise
                lacking = test.name if not test.group or test.group in self._tried else test.group
                self.absent[lacking] = str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
                with suppress(Exception):  # its queue may raise it once more, at whatever comes next
                    _STACK([Tensor(0.0)]).asnumpy()
                continue
            self._tried |= {test.name, test.group}
            done.append((test.name, answer, mask, count))
        counts = _STACK([count for *_, count in done]).asnumpy() if done else ()
        findings = [
            self._find(name, answer, mask.asnumpy(), int(count))
            for (name, answer, mask, _), count in zip(done, counts, strict=True)
            if count != answer.equal
        ]
        if findings:
            self._kept.clear()  # it may be what is wrong
        return findings

    def _find(self, name: str, answer: KnownAnswer, mask: Array, count: int) -> Mismatch:
        shape = (answer.shape[0], -1) if mask.ndim > 1 else (1, -1)
        flat = lambda array: np.broadcast_to(array, answer.shape).reshape(shape)  # noqa: E731
        wrong = ~flat(mask) & ~flat(answer.planted)
        if not wrong.any():
            words = f"{count} elements were counted as equal, must be {answer.equal}"
            return Mismatch(name, abs(count - answer.equal), words)
        (top, bottom), (left, right) = ((int(each.min()), int(each.max())) for each in np.nonzero(wrong))
        found, expected = (flat(_CAST(each, ms.float32).asnumpy()) for each in (answer.found, answer.expected))
        at = tuple(np.argwhere(wrong)[0].tolist())
        words = (
            f"{wrong.sum()} of {wrong.size} elements are wrong, in rows {top} to {bottom}, columns {left} to {right}: "
            f"{list(at)} is {_bits(found[at])}, must be {_bits(expected[at])}"
        )
        before = self._wrong.get(answer.shape, np.zeros_like(wrong))
        if (before & wrong).any():
            words += f"; {(before & wrong).sum()} of these elements were wrong before"
        self._wrong[answer.shape] = before | wrong
        return Mismatch(name, int(wrong.sum()), words)


def computes_in_half() -> bool:
    """Returns whether the device multiplies float32 numbers as float16: those below its range are 0.

    Those above its range are `inf` on some devices and the largest number on others, and count as an overflow.
    """
    rows = np.ones((64, 16), np.float32)
    rows[::2] = 2.0**-30
    try:
        found = P.MatMul()(Tensor(rows), Tensor(np.ones((16, 64), np.float32))).asnumpy()
        return not found[::2].any() and bool((found[1::2] == rows.shape[1]).all())
    except Exception:  # as above
        return False


def _bits(number: np.float32) -> str:
    return f"{float(number)!r} (0x{int(number.view(np.uint32)):08X})"
