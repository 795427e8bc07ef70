"""What ranks tell one another, through MindSpore's collectives.

Whatever is sent becomes int32 numbers, for these pass AllGather and Broadcast on every backend. All ranks must make the
same calls in the same order.
"""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.communication import GlobalComm, get_group_size, get_rank
from mindspore.ops import operations as P  # noqa: N812

__all__ = ["Exchange", "pack", "unpack"]

_LOG = logging.getLogger("asd.replay")


class Exchange:
    """The ranks of this job.

    Args:
        patience: Seconds after which a wait for the other ranks is told in the log.

    Attributes:
        rank: Of this process, from 0.
        size: Number of ranks; 1 where no communication was set up.
    """

    def __init__(self, patience: float = 20.0) -> None:
        self.rank = get_rank() if GlobalComm.INITED else 0
        self.size = get_group_size() if GlobalComm.INITED else 1
        self._patience = patience

    def gather(self, message: bytes) -> list[bytes]:
        """Every rank's message, by rank.

        Raises:
            RuntimeError: A rank did not answer; after how long is MindSpore's choice, on the CPU about half a minute.
        """
        if self.size == 1:
            return [message]
        with self._patient():
            sizes = _array(P.AllGather()(_tensor(np.array([len(message)], np.int32)))).tolist()
            width = -(-max(sizes) // 4)
            if width == 0:
                return [b""] * self.size
            rows = _array(P.AllGather()(_tensor(_words(message, width)))).reshape(self.size, width)
        return [row.tobytes()[:size] for row, size in zip(rows, sizes, strict=True)]

    def broadcast(self, message: bytes, root: int, size: int) -> bytes:
        """The message of `root`, whose length in bytes all ranks know; the others' are ignored.

        Raises:
            RuntimeError: As `gather`.
        """
        width = -(-size // 4)
        if self.size == 1 or width == 0:
            return message
        with self._patient():
            (words,) = P.Broadcast(root)((_tensor(_words(message if self.rank == root else b"", width)),))
            return _array(words).tobytes()[:size]

    @contextmanager
    def _patient(self) -> Iterator[None]:
        """Says so when the other ranks let this one wait; a rank may have died or hang."""
        timer = threading.Timer(
            self._patience, _LOG.error,
            ("rank %d has waited %g s for the other ranks in the exchange of a replay: one of them died or hangs.",
             self.rank, self._patience),
        )  # fmt: skip
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def pack(arrays: Sequence[np.ndarray]) -> bytes:
    """Arrays of any shapes and types as one message; no object arrays."""
    buffer = io.BytesIO()
    for array in arrays:
        np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def unpack(message: bytes) -> list[np.ndarray]:
    """The arrays of `pack`."""
    buffer, arrays = io.BytesIO(message), []
    while buffer.tell() < len(message):
        arrays.append(np.lib.format.read_array(buffer, allow_pickle=False))
    return arrays


def _words(message: bytes, width: int) -> np.ndarray:
    return np.frombuffer(message.ljust(4 * width, b"\0"), np.int32).copy()


def _tensor(words: np.ndarray) -> Tensor:
    return Tensor(words, ms.int32)


def _array(tensor: Tensor) -> np.ndarray:
    array: np.ndarray = tensor.asnumpy()
    return array
