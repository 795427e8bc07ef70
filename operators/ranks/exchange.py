"""Exchange of messages between ranks, through MindSpore's collectives."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Tensor
from mindspore.communication import GlobalComm, create_group, get_group_size, get_rank
from mindspore.ops import operations as P  # noqa: N812

from asd.diagnosis.groups import Groups, everybody
from asd.errors import RankLostError
from asd.origin import machine_name

_LOG = logging.getLogger("asd.ranks")
_PATIENCE = {"CPU": 25.0}
"""On the CPU MindSpore itself gives up after 30 s, and does not name the rank that did not answer."""
_LONG_PATIENCE = 7200.0  # another rank may save a large checkpoint, or compile; HCCL itself waits half an hour or more
_LOOK = 0.2  # seconds; the launcher kills all ranks within a second after one has died, and the sentence must be out
_made: set[str] = set()
_MERCY = 2.0  # seconds; what a rank sent before its end may still be on its way


class _Process(NamedTuple):
    """Identity of a process of one machine, distinct from later processes with the same number."""

    host: str
    machine: str  # see `machine_name`
    pid: int
    started: int  # in clock ticks after the machine

    @classmethod
    def this(cls) -> _Process:
        return cls(socket.gethostname(), machine_name(), os.getpid(), _state(os.getpid())[1])

    def flaw(self) -> str:
        """Returns why the process cannot answer, as far as this machine knows; empty if it can or is unknown."""
        if self.machine != machine_name():
            return ""
        state, started = _state(self.pid)
        if started != self.started or state in {"Z", "X"}:
            return "has died"
        return "is stopped" if state in {"T", "t"} else ""


class Exchange:
    """The ranks of this job, or some of them.

    Args:
        patience: Seconds after which a rank that does not answer is given up; if not given 25 on the CPU, 7,200
            elsewhere. A rank of this machine that has died is noticed at once.
        ranks: Ranks of the job in this exchange, in this order, this one included; all if not given.

    Attributes:
        rank: Index of this process in `ranks`, from 0.
        size: Number of ranks; 1 where no communication was set up.
        ranks: Their numbers in the job, by index in this exchange.
        groups: The replica groups; one group of all ranks until `divide` was called.
        near: Exchange of this rank's replica group.
        lost: Error of the rank that did not answer; from then on every call raises it.
    """

    def __init__(self, patience: float | None = None, ranks: Sequence[int] | None = None) -> None:
        everyone = range(get_group_size() if GlobalComm.INITED else 1)
        own = get_rank() if GlobalComm.INITED else 0
        self.ranks = tuple(everyone if ranks is None else ranks)
        self.rank, self.size = self.ranks.index(own), len(self.ranks)
        self._group = _group_of(self.ranks) if 1 < self.size < len(everyone) else ""
        self.groups = everybody(self.size, self.rank, "")
        self.near: Exchange = self
        target = ms.get_context("device_target")
        self._patience = patience if patience is not None else _PATIENCE.get(target, _LONG_PATIENCE)
        self.lost: RankLostError | None = None
        self._processes: list[_Process] | None = None
        self._whole = self

    def divide(self, groups: Groups) -> None:
        """Sets the replica groups. All ranks must call it."""
        self.groups = groups
        if len(groups.members) < self.size:
            self.near = Exchange(self._patience, groups.members)
            self.near._whole = self

    def gather(self, message: bytes, size: int | None = None) -> list[bytes]:
        """Returns every rank's message, by rank.

        Args:
            message: Message of this rank.
            size: Length of every message in bytes, where all ranks know it; that saves one exchange.

        Raises:
            RankLostError: A rank did not answer.
        """
        if self.size == 1:
            return [message]
        self._meet()
        return self._gather(message, size)

    def tell(self, **words: Any) -> list[dict[str, Any]]:
        """Returns the words of every rank, by rank; each value must fit into JSON.

        Raises:
            RankLostError: As `gather`.
        """
        return [json.loads(message) for message in self.gather(json.dumps(words).encode())]

    def broadcast(self, message: bytes, root: int, size: int) -> bytes:
        """Returns the message of `root`, whose length in bytes all ranks know; other messages are ignored.

        Raises:
            RankLostError: As `gather`.
        """
        width = -(-size // 4)
        if self.size == 1 or width == 0:
            return message
        words = _words(message if self.rank == root else b"", width)
        if self._group:  # where the others give zeros, the sum is what the root gives
            return self._sum(words).tobytes()[:size]
        return self._call(lambda: _array(P.Broadcast(root)((_tensor(words),))[0])).tobytes()[:size]

    def _meet(self) -> None:
        """Exchanges the processes of all ranks once, so that a rank that does not answer can be named."""
        if self._processes is None:
            self._processes = []
            told = self._gather(json.dumps(_Process.this()).encode(), None)
            self._processes = [_Process(*json.loads(message)) for message in told]

    def _gather(self, message: bytes, size: int | None) -> list[bytes]:
        own = np.array([len(message)], np.int32)
        sizes = [size] * self.size if size is not None else self._all_gather(own).tolist()
        width = -(-max(sizes) // 4)
        if width == 0:
            return [b""] * self.size
        rows = self._all_gather(_words(message, width)).reshape(self.size, width)
        return [row.tobytes()[:length] for row, length in zip(rows, sizes, strict=True)]

    def _all_gather(self, words: np.ndarray) -> np.ndarray:
        if self._group:  # on the CPU AllGather knows no groups: each rank fills its own row
            rows = np.zeros((self.size, words.size), np.int32)
            rows[self.rank] = words
            return self._sum(rows.reshape(-1))
        return self._call(lambda: _array(P.AllGather()(_tensor(words))))

    def _sum(self, words: np.ndarray) -> np.ndarray:
        """Returns the sum over ranks of numbers that are zero on all but one rank, or of a few small numbers."""
        total = P.AllReduce("sum", self._group) if self._group else P.AllReduce()
        # The CPU sums no int32; float32 holds each 16-bit half exactly.
        halves = Tensor(words.view(np.uint16).astype(np.float32))
        return self._call(lambda: _array(total(halves)).astype(np.uint16).view(np.int32))

    def _call(self, collective: Callable[[], np.ndarray]) -> np.ndarray:
        """Returns the result of `collective`, called in its own thread, for a waiting one cannot be stopped."""
        if self._whole.lost is not None:
            raise self._whole.lost
        results: list[np.ndarray] = []
        failures: list[Exception] = []

        def run() -> None:
            try:
                results.append(collective())
            except Exception as error:  # handed over to the thread that waits
                failures.append(error)

        thread = threading.Thread(target=run, name="asd-exchange", daemon=True)
        thread.start()
        waited = self._wait_for(thread)
        if results:
            return results[0]
        if failures and waited < _MERCY:
            raise failures[0]  # no rank kept this one waiting
        self.lost = self._whole.lost = self._loss(waited)
        _LOG.error("%s", self.lost)
        raise self.lost from (failures[0] if failures else None)

    def _wait_for(self, thread: threading.Thread) -> float:
        """Waits for the thread until the patience ends or a rank has died; returns the seconds waited."""
        waited, end, dead = 0.0, self._patience, ""
        while thread.is_alive() and waited < end:
            began = time.monotonic()
            thread.join(_LOOK)
            waited += min(time.monotonic() - began, 2 * _LOOK)  # while this rank itself is stopped it does not wait
            if thread.is_alive() and not dead and (dead := self._flaws("has died")):
                _LOG.error("rank %d can't go on: %s in an exchange of the ranks.", self.ranks[self.rank], dead)
                end = min(end, waited + _MERCY)
        return waited

    def _loss(self, waited: float) -> RankLostError:
        flaws = [(rank, process.flaw()) for rank, process in zip(self.ranks, self._processes or [], strict=False)]
        return RankLostError(self.ranks[self.rank], tuple(rank for rank, flaw in flaws if flaw), waited, self._flaws())

    def _flaws(self, only: str = "") -> str:
        """Returns which ranks cannot answer and why, as text; empty when unknown."""
        found: dict[str, list[str]] = {}
        for rank, process in zip(self.ranks, self._processes or [], strict=False):
            if (flaw := process.flaw()) and flaw.startswith(only):
                found.setdefault(flaw, []).append(f"rank {rank} (process {process.pid} on {process.host})")
        return "; ".join(f"{', '.join(ranks)} {flaw}" for flaw, ranks in found.items())


def _group_of(ranks: Sequence[int]) -> str:
    """Returns MindSpore's name for a group of these ranks; the first call makes the group, on each of its ranks."""
    name = f"asd_{zlib.crc32(repr(tuple(ranks)).encode()):08x}_of_{len(ranks)}"
    if name not in _made:
        create_group(name, list(ranks))
        _made.add(name)
    return name


def _state(pid: int) -> tuple[str, int]:
    """Returns the letter of a process's state and its start time in clock ticks; ("", 0) if it does not exist."""
    try:
        # The name before it may hold blanks and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, IndexError):
        return "", 0


def pack(arrays: Sequence[np.ndarray]) -> bytes:
    """Packs arrays of any shapes and types, but no objects, into one message."""
    buffer = io.BytesIO()
    for array in arrays:
        np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def unpack(message: bytes) -> list[np.ndarray]:
    """Unpacks the arrays of `pack`."""
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
