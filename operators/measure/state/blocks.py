"""An optimizer's weights and state on the CPU, read in blocks: some of them in each step, all of them in turns."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable
from math import ceil
from statistics import median

import numpy as np

from asd.operators.kernel.blocks import BLOCK_DTYPE, TYPES, blocks_of, read_blocks
from asd.operators.measure.state.optimizer_state import OptimizerState
from asd.operators.measure.state.snapshot import SELDOM, SHARE, Snapshot
from asd.operators.private.memory import wait_for_writes
from asd.operators.private.writes import writes_to

__all__ = ["StateBlocks"]

_RECENT = 33
_FEW_BYTES = 1 << 20
"""As many are read in each step: fewer take about as long."""
_STEADY = 0.25
"""Turns are changed when they are off by more than that, for every measurement of time is another."""


class StateBlocks:
    """Reads the tensors where they lie, without a copy, by one call of the kernel.

    Block b of tensor t is read in turn (b + t) modulo `turns`, so that each turn takes about as long.

    Args:
        state: What is read; of second moments the smallest value too.

    Attributes:
        turns: In how many turns all blocks are read.
        tensor_of: Per block the number of its tensor.
        block_of: Per block its number in that tensor.
        unread: Names of tensors that don't lie in one piece in this process's memory.
    """

    def __init__(self, state: OptimizerState) -> None:
        self.turns = 1
        self.unread: list[str] = []
        self._seconds: deque[float] = deque(maxlen=_RECENT)  # what reading all of them would have taken
        self._tensors = state.parameters
        self._smallest = [group.second_moment for group in state.groups for _ in group.parameters]
        self._places: list[Hashable] | None = None
        self._chosen: dict[tuple[int, int], np.ndarray] = {}
        self._table = np.empty(0, BLOCK_DTYPE)
        self.tensor_of = self.block_of = np.empty(0, np.int64)
        self._held: list[object] = []
        wait_for_writes()
        self._find(self._where())

    def due(self, step: int) -> bool:
        """Whether something is read after this step."""
        return True

    def read(self, step: int, *, extremes: bool = True) -> Snapshot:
        """The blocks that have their turn in this step, as they are now; `extremes` of them only if asked for."""
        places = self.places()
        if places != self._places:
            self._find(places)
        turn = step % self.turns
        chosen = self._chosen.get((turn, self.turns))
        if chosen is None:
            chosen = np.flatnonzero((self.block_of + self.tensor_of) % self.turns == turn)
            self._chosen[turn, self.turns] = chosen
        begin = time.perf_counter()
        hashes, found = read_blocks(self._table[chosen], extremes=extremes)
        self._seconds.append((time.perf_counter() - begin) * len(self._table) / max(1, len(chosen)))
        return Snapshot(turn, self.turns, places, chosen, self.tensor_of[chosen], hashes, found)

    def places(self) -> list[Hashable]:
        """Per tensor what changes when the program gives it another value, when all that was called has written."""
        wait_for_writes()
        return self._where()

    def table_of(self, snapshot: Snapshot) -> np.ndarray:
        """Where the blocks of a snapshot lie, as long as its places are those of now; nobody frees them meanwhile."""
        table: np.ndarray = self._table[snapshot.chosen]
        return table

    def pace(self, step_seconds: float) -> None:
        """Chooses `turns`, so that both readings of a step take `SHARE` of it at most."""
        if not self._seconds or step_seconds <= 0:
            return
        most = min(SELDOM, int(self._table["bytes"].sum()) // _FEW_BYTES)
        turns = max(1, min(most, ceil(2 * median(self._seconds) / (SHARE * step_seconds))))
        if abs(turns - self.turns) > _STEADY * self.turns:
            self.turns = turns

    def _where(self) -> list[Hashable]:
        # `set_data` and what loads checkpoints give another address, operators in place another version.
        return [(each.data_ptr(), writes_to(each), each.nbytes) for each in self._tensors]

    def _find(self, places: list[Hashable]) -> None:
        """Finds the blocks anew, for a tensor may have moved."""
        tables, self.unread, self._held = [], [], []
        for tensor, smallest in zip(self._tensors, self._smallest, strict=True):
            address, dtype = tensor.data_ptr(), str(tensor.dtype).lower()
            if address == 0 or not tensor.is_contiguous() or dtype not in TYPES:
                self.unread.append(tensor.name)
                tables.append(np.empty(0, BLOCK_DTYPE))
            else:
                # `set_data` frees what is there, and the gate may be about to read it.
                self._held.append(tensor.untyped_storage() if dtype == "bfloat16" else tensor.asnumpy())
                tables.append(blocks_of(address, tensor.nbytes, dtype, smallest=smallest))
        counts = [len(table) for table in tables]
        self._places = places
        self._table = np.concatenate([np.empty(0, BLOCK_DTYPE), *tables])
        self._chosen = {}
        self.tensor_of = np.repeat(np.arange(len(tables)), counts)
        self.block_of = np.concatenate([np.empty(0, np.int64), *map(np.arange, counts)])
