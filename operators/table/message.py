"""What goes with the all-reduce of the gate besides its verdict: in data parallel the hash of a rank's weights.

A sum over the ranks tells whether a bit is the same on all of them: it is 0 then, or the number of ranks. float32 holds
that exactly for more ranks than there are. All of them see the same sums, so all know at once what they have to do.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

__all__ = ["ANNOUNCEMENT", "WIDTH", "HashComparison", "answer_of", "message_of"]

ANNOUNCEMENT: Final = 1 / 65536
"""Too little, even from 32767 ranks, to refuse an update."""
WIDTH: Final = 66
"""The verdict, the wish, which is 0 where there is no hash, and the 64 bits of one."""


class HashComparison(NamedTuple):
    """What a rank learns of all of them.

    Attributes:
        alike: Whether all told the same hash.
        wish: The mean of what they wished.
    """

    alike: bool
    wish: float


def message_of(hash_of_weights: int, wish: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """The message of one rank, without its verdict.

    Args:
        hash_of_weights: From 0 to 2**64 - 1.
        wish: From 1 to 64, of how many turns the weights should be compared in one.

    >>> int(message_of(5, wish=1)[2:].sum())
    2
    """
    bits = np.unpackbits(np.frombuffer(hash_of_weights.to_bytes(8, "little"), np.uint8))
    return np.concatenate([[0, wish], bits]).astype(np.float32)


def answer_of(sums: np.ndarray[Any, np.dtype[np.float32]], ranks: int) -> HashComparison:
    """What the sum of the messages of so many ranks says.

    >>> answer_of(message_of(5, wish=1) + message_of(4, wish=2), ranks=2)
    HashComparison(alike=False, wish=1.5)
    """
    bits = sums[2:]
    return HashComparison(bool(np.all((bits == 0) | (bits == ranks))), float(sums[1]) / ranks)
