"""Faults: what they do to a tensor, and where, when and for how long they strike; decided by a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

__all__ = ["PATTERNS", "Fault", "corrupt", "draw_fault", "round_to_bfloat16"]

Array = np.ndarray[Any, Any]
Random = np.random.Generator
LOWEST_BIT, HIGHEST_BIT = 20, 31  # bits 4 to 15 of bfloat16
SCALES = (-1.0, 0.0, 2.0, 8.0, 64.0, 1e3, 1e6)


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        target: `site` for a computed tensor, `weight` for the weights of one rank, `m`, `v` or `master` for the
            optimizer's state (held once, as a sharded optimizer holds it), `reduced` for the averaged gradient.
        place: Number of the site, or of the weight tensor.
        rank: The rank it strikes.
        pattern: One of `PATTERNS`.
        start: First step with the fault.
        duration: Steps it lasts; what is corrupted in a state stays so.
        seed: Decides which elements are hit, and by how much.
    """

    target: str
    place: int
    rank: int
    pattern: str
    start: int
    duration: int
    seed: int

    def active(self, step: int) -> bool:
        """Whether it strikes in `step`."""
        return self.start <= step < self.start + self.duration

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def round_to_bfloat16(array: Array) -> Array:
    """Float32 rounded to the nearest bfloat16, ties to even; NaN and infinities stay."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))
    rounded = np.where(np.isfinite(array), rounded, bits) & np.uint32(0xFFFF0000)
    return rounded.view(np.float32)


def corrupt(array: Array, fault: Fault, *, rounded: bool) -> Array:
    """A corrupted copy of a float32 array.

    Args:
        array: Any shape.
        fault: Its pattern and seed; the same elements are hit every time.
        rounded: Whether the result has to be representable in bfloat16.
    """
    faulty = np.array(array, np.float32, order="C")
    random = np.random.default_rng(fault.seed)
    with np.errstate(all="ignore"):
        PATTERNS[fault.pattern](faulty, random)
        return round_to_bfloat16(faulty) if rounded else faulty


def draw_fault(random: Random, *, target: str, places: int, ranks: int, start: int, patterns: tuple[str, ...]) -> Fault:
    """A fault for one target; 1 step for four in seven computed tensors, and for every state."""
    durations = (1, 1, 1, 1, 3, 10, 20) if target in {"site", "reduced"} else (1,)
    weights = np.array([WEIGHT[pattern] for pattern in patterns])
    return Fault(
        target,
        int(random.integers(places)),
        int(random.integers(ranks)),
        str(random.choice(patterns, p=weights / weights.sum())),
        start,
        int(random.choice(durations)),
        int(random.integers(2**31)),
    )


def _rows(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1] if array.ndim else 1)


def _bits(array: Array) -> Array:
    return array.reshape(-1).view(np.uint32)


def _mask(random: Random, count: int) -> np.uint32:
    chosen = random.choice(np.arange(LOWEST_BIT, HIGHEST_BIT + 1), size=count, replace=False)
    return np.uint32(sum(1 << int(bit) for bit in chosen))


def _bit(array: Array, random: Random) -> None:
    _bits(array)[random.integers(array.size)] ^= _mask(random, 1)


def _several_bits(array: Array, random: Random) -> None:
    _bits(array)[random.integers(array.size)] ^= _mask(random, int(random.integers(2, 4)))


def _two_elements(array: Array, random: Random) -> None:
    mask = _mask(random, 1)
    _bits(array)[random.integers(array.size, size=2)] ^= mask


def _stuck(array: Array, random: Random) -> None:
    rows, mask = _bits(array).reshape(_rows(array).shape), _mask(random, 1)
    column = random.integers(rows.shape[1])
    if random.random() < 0.5:
        rows[:, column] |= mask
    else:
        rows[:, column] &= ~mask


def _tile(array: Array, random: Random) -> None:
    rows = _rows(array)
    top, left = (int(random.integers(max(1, size - 15))) for size in rows.shape)
    rows[top : top + 16, left : left + 16] *= np.float32(random.choice(SCALES))


def _stride(array: Array, random: Random) -> None:
    flat = array.reshape(-1)
    hit = slice(int(random.integers(min(32, flat.size))), None, 32)
    if random.random() < 0.5:
        _bits(array)[hit] ^= _mask(random, 1)
    else:
        spread = float(np.abs(flat).mean(dtype=np.float64)) * 2.0 ** random.integers(0, 11)
        flat[hit] = (random.standard_normal(flat[hit].size) * spread).astype(np.float32)


def _row_copy(array: Array, random: Random) -> None:
    rows = _rows(array)
    source, *others = random.permutation(len(rows))[: 1 + int(random.integers(1, 9))]
    rows[others] = rows[source]


def _noise(array: Array, random: Random) -> None:
    sigma = 2.0 ** random.integers(-8, -1)
    array *= (1 + sigma * random.standard_normal(array.shape)).astype(np.float32)


def _not_finite(array: Array, random: Random) -> None:
    array.reshape(-1)[random.integers(array.size)] = random.choice([np.nan, np.inf, -np.inf])


def _zero_rows(array: Array, random: Random) -> None:
    rows = _rows(array)
    rows[random.permutation(len(rows))[: 1 + int(random.integers(1, 5))]] = 0


def _lane(array: Array, random: Random) -> None:
    rows = _rows(array)
    rows[:, int(random.integers(min(8, rows.shape[1]))) :: 8] *= np.float32(2.0 ** random.integers(-4, 13))


PATTERNS: dict[str, Callable[[Array, Random], None]] = {
    "bit": _bit,
    "several bits": _several_bits,
    "two elements": _two_elements,
    "stuck bit": _stuck,
    "tile": _tile,
    "stride": _stride,
    "row copy": _row_copy,
    "noise": _noise,
    "not finite": _not_finite,
    "zero rows": _zero_rows,
    "lane": _lane,
}
"""Each changes an array in place."""
WEIGHT = {**dict.fromkeys(PATTERNS, 0.1), "bit": 0.3, "not finite": 0.01}
"""How often each is drawn: single bits are fewer than 40 % of real bit flips, NaN and infinities about 1 %."""
