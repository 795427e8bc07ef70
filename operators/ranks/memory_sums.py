"""Sums of the words of weights and moments between two updates: finds flipped bits, and puts them back."""

import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor
from mindspore.ops import auto_generate
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.private.cells import without_gradients
from asd.operators.private.layout import local
from asd.operators.ranks.weights import sum_of, words_of

TURNS = 64  # parts that are summed in turn, until it is known how long that takes
_AIM = 0.003  # most time that sums may take from then on, of the fastest step's
_JOINED, _BLOCK = 1 << 20, 1 << 24
"""Words of tensors that are joined, as launches take longer than one more copy, and of what they are joined to."""
_FEW, _SMALL = 16, 1 << 24
"""Parts of at most so many words, as steps are short: each takes little more time than a launch."""
_PAUSE = 4  # most steps from one turn to the next where sums take longer than that
_LEAST = 64  # words of a tensor: a program may well write a single one of a smaller tensor
_NEXT_TO_EACH_OTHER = 16  # most bits of a word flip in a run below four
_LOW = {ms.float16: 10, ms.bfloat16: 7, ms.float32: 19, ms.float64: 20}
"""Low bits of a word: if they change, a program may have written it, as a clamp does. If all 19 stay, none has."""

Place = tuple[int, int, int]  # block, word in it, by how much it has changed


class Damage(NamedTuple):
    """Memory that changed though nothing wrote it."""

    name: str  # of the Parameter
    reason: str  # change as text
    healed: bool  # whether the bits were put back


class MemorySums:
    """Row and column sums of words, of some tensors in turn; a write of the program changes more of them than a flip.

    Args:
        tensors: Weights and state of an optimizer.
        heals: Whether flipped bits are put back.

    Attributes:
        turns: Number of parts that are summed in turn; 0 where there is nothing to sum.
        every: Steps from one turn to the next.
        share: Largest share of the tensors in a turn.
    """

    def __init__(self, tensors: Sequence[Parameter] = (), *, heals: bool = True):
        self._tensors, self._heals, self._turn, self._sealed = tensors, heals, -1, None
        self.every = 1
        self._divide(_FEW if sum(local(each).size for each in tensors) <= _SMALL else TURNS)
        self._pace, self._ended = math.inf, -math.inf
        self._seconds: list[float] = []  # of the comparisons of a round
        self._views: dict[int, tuple[int, Tensor]] = {}  # words of a tensor, with where they are; made once

    def _divide(self, turns: int) -> None:
        """Divides the tensors into at most so many parts."""
        sizes = {i: size for i, each in enumerate(self._tensors) if (size := local(each).size) >= _LEAST}
        self.turns = min(turns, len(sizes))
        self._blocks: list[list[list[int]]] = [[] for _ in range(self.turns)]
        held, room = [0] * self.turns, [0] * self.turns
        for i in sorted(sizes, key=sizes.__getitem__, reverse=True):
            turn = held.index(min(held))
            held[turn] += sizes[i]
            if sizes[i] <= room[turn]:
                self._blocks[turn][-1].append(i)
            else:
                self._blocks[turn].append([i])
                room[turn] = _BLOCK if sizes[i] <= _JOINED else 0
            room[turn] -= sizes[i]
        self.share = max(held, default=0) / max(1, sum(local(each).size for each in self._tensors))

    def _words(self, block: Sequence[int]) -> list[Tensor]:
        found = []
        for i in block:
            part = local(self._tensors[i])
            if part.dtype != ms.float32:  # a half is copied by its cast
                found.append(words_of(part))
                continue
            place, view = part._data_ptr(), self._views.get(i)
            if view is None or view[0] != place:
                self._views[i] = view = place, words_of(part)
            found.append(view[1])
        return found

    def _sums(self) -> Tensor:
        found = []
        with without_gradients():
            for block in self._blocks[self._turn]:
                words = self._words(block)
                size = sum(each.shape[0] for each in words)
                if rest := -size % _width(size):
                    words.append(Tensor(np.zeros(rest, np.int32)))
                rows = P.Reshape()(P.Concat()(words) if len(words) > 1 else words[0], (-1, _width(size)))
                found += [sum_of(rows, 1), sum_of(rows, 0)]
            return P.Concat()(found)

    def seal(self, *, updated: bool) -> bool:
        """Sums the tensors whose turn is next, after a step; without an update the last sums still hold.

        Returns:
            Whether more or fewer tensors are summed from now on.
        """
        if not self.turns or not (updated or self._sealed is None):
            return False
        begin, self._ended = self._ended, time.perf_counter()
        self._pace = min(self._pace, (self._ended - begin) / self.every)
        changes = len(self._seconds) >= self.turns and self._adapt()
        self._turn = (self._turn + 1) % self.turns
        self._sealed = self._sums()
        return changes

    def _adapt(self) -> bool:
        """Divides by the time of the last round, after each; returns whether that changes anything."""
        steps, share = math.ceil(2 * sum(self._seconds) / (_AIM * self._pace)), self.turns * self.every
        self._seconds, self._ended = [], -math.inf
        if steps > self.turns:
            self.every = min(_PAUSE, math.ceil(steps / self.turns))
        elif steps < share:
            self.every = 1
            self._divide(max(1, steps))
        return self.turns * self.every != share

    def damage(self) -> Damage | None:
        """Compares the sums before the next update, and puts a flipped bit back; waits for the device."""
        sealed, self._sealed = self._sealed, None
        if sealed is None:
            return None
        begin, now = time.perf_counter(), self._sums()
        if now.shape != sealed.shape:  # the weights were sharded
            return None
        before, first = np.split(P.Concat()((sealed, now)).asnumpy().view(np.uint32), 2)
        self._seconds.append(time.perf_counter() - begin)
        if np.array_equal(before, first):
            return None
        second = self._sums().asnumpy().view(np.uint32)
        if not np.array_equal(first, second):
            return Damage("weights", "two sums of the same words of weights and moments differ", healed=False)
        place = next((each for each in self._flips(second - before) if each is not None), None)
        if place is not None and place[2] == 0:
            name = self._tensors[self._blocks[self._turn][place[0]][0]].name
            return Damage(name, "row sums and column sums of the same words contradict each other", healed=False)
        return None if place is None else self._put_back(place, before)

    def _flips(self, changes: np.ndarray) -> Iterator[Place | None]:
        """Yields the changed word of each block, with a change of 0 for impossible sums; None where others changed."""
        for number, block in enumerate(self._blocks[self._turn]):
            size = sum(each.shape[0] for each in self._words(block))
            width = _width(size)
            rows, columns, changes = np.split(changes, np.cumsum([-(-size // width), width]))
            at, across = np.flatnonzero(rows), np.flatnonzero(columns)
            if len(at) == len(across) == 1 and rows[at[0]] == columns[across[0]]:
                yield number, int(at[0]) * width + int(across[0]), int(rows[at[0]])
            else:
                yield (number, 0, 0) if len(at) + len(across) == 1 or len(at) == len(across) == 1 else None

    def _put_back(self, place: Place, before: np.ndarray) -> Damage | None:
        """Restores a word with flipped high bits; None where a program may have written it."""
        number, word, change = place
        block = [self._tensors[i] for i in self._blocks[self._turn][number]]
        ends = np.cumsum([words_of(local(each)).shape[0] for each in block])
        at = int(np.searchsorted(ends, word, side="right"))
        word -= int(ends[at - 1]) if at else 0
        name, part = block[at].name, local(block[at])
        kind = ms.int16 if part.dtype in (ms.float16, ms.bfloat16) else ms.int32
        words: np.ndarray = auto_generate.view_dtype(P.Reshape()(part, (-1,)), kind).asnumpy().copy()
        bits = words.view(np.uint16 if kind == ms.int16 else np.uint32)
        now = int(bits[word])
        bits[word] = then = (now - change) % 2 ** (8 * bits.itemsize)
        flipped = now ^ then
        is_low = part.dtype == ms.float64 and word % 2 == 0  # the half that has only mantissa
        if is_low or flipped % (1 << _LOW[part.dtype]) or flipped // (flipped & -flipped) >= _NEXT_TO_EACH_OTHER:
            return None
        healed = False
        if self._heals:
            with without_gradients():
                part.copy_(P.Reshape()(auto_generate.view_dtype(Tensor(words), part.dtype), part.shape))
            healed = np.array_equal(self._sums().asnumpy().view(np.uint32), before)
        what = f"number {word} of {name} was {then:#x} after the last update and is {now:#x} before the next"
        return Damage(name, f"{what}, in bits: memory has changed that nothing wrote", healed)


def _width(size: int) -> int:
    return 1 << (size.bit_length() // 2)
