"""Compares the blocks of weights and optimizer state that a step left with what is there before the next update."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from mindspore import Parameter, nn

from asd.operators.kernel.seal import GateSeal, SealState
from asd.operators.measure.state.blocks import StateBlocks
from asd.operators.measure.state.snapshot import Snapshot
from asd.operators.private.compiler import compiled_functions
from asd.operators.private.writes import tell_before_graphs, watch_writes, written_besides
from asd.rules.history.seal import Sealed

__all__ = ["Comparison", "StateSeal"]

_SMALLEST = 8
"""Elements: programs clip a scalar of theirs now and then, by ways that leave no trace, and faults hardly hit one."""


class Comparison(NamedTuple):
    """What a step left and what was there later.

    Attributes:
        step: The step.
        after: The tensors at its end, by name; empty where nothing changed.
        before: The same blocks later.
        traced: Whether something ran in between that may have written them.
        broken: Whether the gate refuses updates because of it.
    """

    step: int
    after: Mapping[str, Sealed] = {}
    before: Mapping[str, Sealed] = {}
    traced: bool = False
    broken: bool = False


class StateSeal:
    """Of one optimizer.

    It is closed at the end of a step. At the beginning of the next one it finds out whether the program may have
    written something meanwhile. The gate looks at the blocks before it lets the update pass; where there is none, or
    the program may have written, they are looked at right away.

    Args:
        blocks: What reads the tensors.
        tensors: These, in the same order.
        gate: That of the guarded optimizer; None where it is not guarded.
        judges: Whether a change of the tensor with this name would be a fault.
    """

    def __init__(
        self, blocks: StateBlocks, tensors: Sequence[Parameter], gate: GateSeal | None = None,
        judges: Callable[[str], bool] = bool,
    ) -> None:  # fmt: skip
        watch_writes()
        self._blocks, self._gate, self._judges = blocks, gate, judges
        self._count = len(tensors)
        self._names = {i: each.name for i, each in enumerate(tensors) if each.size >= _SMALLEST}
        self._after: tuple[int, Snapshot] | None = None
        self._tensors = {id(each) for each in tensors}
        self._concerned: weakref.WeakKeyDictionary[nn.Cell, bool] = weakref.WeakKeyDictionary()
        self._ran = False  # a graph that may have written one of them, since the last step ended
        self._graphs = 0  # such as ran in this step
        self._searched = compiled_functions()
        self._written: set[str] = set()  # by the program's own graphs, before each update
        self._left_out: set[int] = set()
        self._watched = False
        tell_before_graphs(self._before_graph)

    @property
    def watched(self) -> bool:
        """Whether the beginning of the running step was seen."""
        return self._watched

    @property
    def is_left_alone(self) -> bool:
        """Whether nothing but the optimizer has written in the step that was made, as far as is known."""
        return not self._left_out and self._graphs <= 1

    def close(self, step: int, left: Snapshot | None) -> None:
        """Keeps what `step` left, if its beginning was seen: else nobody will ask at that of the next.

        Where the gate was not asked, as while gradients are summed up over steps, what was kept before still holds.

        Args:
            step: The step that was made.
            left: What was read at its end; None if nothing was, and it has to be done now.
        """
        waits = self._gate is not None and self._gate.state is SealState.SEALED
        if not (self._watched and waits):
            self._after = (step, left or self._blocks.read(step, extremes=False)) if self._watched else None
            if self._gate is not None:
                self._gate.take_away()
        self._watched = self._ran = False
        self._graphs = 0

    def open(self, *, look: bool = False) -> Comparison | None:
        """Seals what the last step left for the gate.

        Args:
            look: Whether to compare now in any case, as before what is there is written to a file.

        Returns:
            What was found; None if nothing was compared.
        """
        is_again, self._watched = self._watched, True
        if self._after is None or is_again:
            return None
        step, left = self._after
        found = None
        if look or self._ran or self._gate is None:
            now = self._blocks.read(left.turn, extremes=False)
            after, before = ({}, {}) if now.equals(left) else (self._sealed(left), self._sealed(now))
            found = Comparison(step, after, before, traced=self._ran)
            left = now
        if self._gate is None:
            self._after = None
        else:
            self._after = step, left
            self._put(self._gate, left)
        return found

    def _before_graph(self, cell: nn.Cell | None) -> None:
        if cell is not None and not self._concerns(cell):
            return
        self._ran = True
        self._graphs += self._watched
        self.leave_out_written(() if cell is None else cell.compile_cache)

    def _concerns(self, cell: nn.Cell) -> bool:
        if cell not in self._concerned:
            self._concerned[cell] = any(id(each) in self._tensors for each in cell.get_parameters())
        return self._concerned[cell]

    def _search(self, phases: Iterable[str]) -> None:
        new = frozenset(phases) - self._searched
        if new:
            self._searched |= new
            self._written |= written_besides(new)

    def _put(self, gate: GateSeal, left: Snapshot) -> None:
        self._search(compiled_functions())
        self._left_out = {i for i, name in self._names.items() if name in self._written}
        judged = np.zeros(self._count, bool)
        judged[[i for i, name in self._names.items() if i not in self._left_out and self._judges(name)]] = True
        gate.put(self._blocks.table_of(left), left.hashes, left.tensors, judged)

    def leave_out_written(self, phases: Iterable[str] = ()) -> None:
        """Before the gate looks: what the program wrote since the step began, or its graphs write, is not judged.

        Args:
            phases: Of a compiled cell that is about to run.
        """
        if self._gate is None or self._after is None or self._gate.state is not SealState.SEALED:
            return
        try:
            self._search({*phases, *compiled_functions()})
            places = self._blocks.places()
        except Exception:  # whatever it is, it must not end a training, and without an answer nothing is judged
            self._gate.take_away()
            return
        for i, pair in enumerate(zip(places, self._after[1].places, strict=True)):
            if pair[0] != pair[1] or self._names.get(i) in self._written:
                self._left_out.add(i)
                self._gate.do_not_judge(i)

    def at_gate(self) -> Comparison | None:
        """What the gate found in the step that was made; None where it did not look."""
        if self._gate is None or self._after is None:
            return None
        state = self._gate.state
        if state is SealState.KEPT:
            return Comparison(self._after[0])
        if state not in (SealState.CHANGED, SealState.BROKEN):
            return None
        step, left = self._after
        now = left._replace(hashes=self._gate.found())
        out = self._left_out
        return Comparison(step, self._sealed(left, out), self._sealed(now, out), broken=state is SealState.BROKEN)

    def take_away(self) -> None:
        """Lets the gate pass updates again."""
        if self._gate is not None:
            self._gate.take_away()

    def _sealed(self, snapshot: Snapshot, left_out: Collection[int] = ()) -> dict[str, Sealed]:
        begins, ends = (np.searchsorted(snapshot.tensors, list(self._names), side) for side in ("left", "right"))
        every, turn = snapshot.turns, snapshot.turn
        return {
            name: Sealed(snapshot.places[i], tuple(snapshot.hashes[begin:end].tolist()), (turn - i) % every, every)
            for (i, name), begin, end in zip(self._names.items(), begins, ends, strict=True)
            if i not in left_out
        }
