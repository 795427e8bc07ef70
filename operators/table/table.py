"""The table of slots: one per checkpoint, written by the device during a step, read by the host after it."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from asd.operators.table.gate import Gate
from asd.operators.table.gates import Gates
from asd.operators.table.guard_state import OFF, ON, REPLAY, GuardState, new_parameter, write
from asd.operators.table.site import Limits, Site, Sites, largest_raw, smallest_raw
from asd.rules.readings.features import FEATURES
from asd.rules.readings.reading import AVERAGED, GRADIENT, SAMPLE, WEIGHT_GRADIENT, Reading, divisor

__all__ = ["Table"]

_AT_GATE = (WEIGHT_GRADIENT, AVERAGED, SAMPLE)
_LATER = 1 << 40


class Table:
    """The slots as Parameters that operators write, and what the gate of a compiled graph compares them with.

    They belong to no Cell, so they appear in no checkpoint and in no list of weights. A slot keeps the worst call of a
    step, so micro-batches and shared layers need no special care. Where a method takes no gate, the default one is
    meant.

    Attributes:
        worst: float32 of shape (3 * capacity,), written by the taps: all largest magnitudes, all norms, all means.
        tallies: float32 of shape (2 * capacity,): calls of all slots, then elements that are not finite.
        values: These two.
        aside: The same two of refused updates, until the host reads.
        limits: Of the shape of `worst`, the largest values that pass, already multiplied by the loss scale.
        least: float32 of shape (2 * capacity,), lower limits of norms and means.
        zero_passes: float32 of shape (capacity,), -1 where a tensor that is all zero is too small, else 0.
        held: float32 of shape (`GUARDS`,), 1 for each guard whose next update may belong to a step that was refused.
        guards: What the guards that live have in the table.
        due: float32 of shape (capacity,), 1 where a product is checked in the next step.
        replaying: Whether a step is being made again.
        gates: Of the monitors that live.
    """

    CAPACITY = 4096
    GUARDS = 64

    def __init__(self) -> None:
        self._sites = Sites(self.CAPACITY)
        features, counts = len(FEATURES) * self.CAPACITY, 2 * self.CAPACITY
        self.worst, self.tallies = self.values = (
            self._parameter("worst", 0.0, features),
            self._parameter("tallies", 0.0, counts),
        )
        self.aside = self._parameter("aside_worst", 0.0, features), self._parameter("aside_tallies", 0.0, counts)
        self.held, self.guards = self._parameter("held", 0.0, self.GUARDS), weakref.WeakSet[GuardState]()
        self._refused_at_read, self._is_aside = 0, False
        self.gates = Gates(self.CAPACITY)
        self.limits = self._parameter("limits", math.inf, features)
        self.least = self._parameter("least", 0.0, features - self.CAPACITY)
        self.zero_passes = self._parameter("zero_passes", 0.0, self.CAPACITY)
        self._least = [np.zeros(self.CAPACITY, np.float32) for _ in FEATURES]
        self._limits = [np.full(self.CAPACITY, np.inf, np.float32) for _ in FEATURES]
        self.due, self._due = self._parameter("due", 0.0, self.CAPACITY), np.zeros(self.CAPACITY, bool)
        self._judged = np.full(self.CAPACITY, -1)  # by which gate
        self._is_replay = False
        self._before_replay: list[np.ndarray] = []
        self.replaying = False

    _parameter = staticmethod(new_parameter)

    def __deepcopy__(self, memo: Any) -> Table:
        """Itself: a copy of a network is checked by the same table."""
        return self

    def new_site(self, name: str, kind: str = GRADIENT) -> Site:
        """A fresh slot under `name`."""
        site = self._sites.new(name, kind)
        self._read([site], self.refused())
        if self._judged[site.slot] >= 0:
            self._judged[site.slot] = -1
            self._write_judged()
        return site

    def new_gate(self) -> Gate:
        """A fresh gate."""
        gate = self.gates.new()
        self._judged[self._judged == gate.number] = -1
        return gate

    def new_guard(self, number: int, width: int = 1) -> GuardState:
        """What the guard of this number has in the table; it is the default gate's."""
        state = GuardState(self.CAPACITY, self.GUARDS, number % self.GUARDS, self.gates.default, width)
        self.guards.add(state)
        self._share_holds()
        state.arm(self._mode(self.gates.default))
        state.judge(self._judged)
        return state

    def give_guard(self, guard: Any, gate: Gate) -> None:
        """Says whose `guard`, the gate cell of an optimizer, is."""
        guard.state.gate = gate
        self._share_holds()
        guard.state.arm(self._mode(gate))
        guard.state.judge(self._judged)

    def _share_holds(self) -> None:
        """Most trainings have one optimizer, whose guard need not ask what another one did."""
        for state in self.guards:
            peers = {other.number for other in self.guards if other.gate is state.gate} - {state.number}
            state.share(peers)

    def _guards_of(self, gate: Gate | None) -> list[GuardState]:
        own = gate or self.gates.default
        return [state for state in self.guards if state.gate is own]

    def _mode(self, gate: Gate) -> int:
        return REPLAY if self._is_replay else ON if gate.armed else OFF

    def sites(self) -> list[Site]:
        """All living sites, in the order of their slots."""
        return self._sites.ordered()

    def read(self, sites: Sequence[Site], gate: Gate | None = None) -> list[Reading]:
        """The readings of those of `sites` that were checked since the last call; empties their slots.

        What a refused update left is among them: the gate has set it aside, so that later steps are judged without it.
        """
        states, refused = self._guards_of(gate), self.refused()
        for state in states:
            state.have_read()
        numbers = [state.number for state in states if not state.is_alone]
        if numbers and (held := self.held.asnumpy().copy())[numbers].any():
            held[numbers] = 0
            write(self.held, held)
        return self._read(sites, refused)

    def _read(self, sites: Sequence[Site], refused: int) -> list[Reading]:
        slots = [site.slot for site in sites]
        worst, tallies = self._rows()
        if refused != self._refused_at_read or self._is_aside:
            self._refused_at_read = refused
            worst, tallies = self._with_what_was_set_aside(worst, tallies, slots)
        # Before they are emptied: what is read here is the Parameters' own memory.
        features, counts = (rows[:, slots].T.tolist() for rows in (worst, tallies))
        if tallies[0, slots].any():
            for parameter, rows in zip(self.values, (worst, tallies), strict=True):
                emptied = rows.copy()
                emptied[:, slots] = 0
                write(parameter, emptied.reshape(-1))
        return [
            Reading(site.name, largest, norm, int(bad), int(calls), _order(site), mean_abs=mean, kind=site.kind)
            for site, (largest, norm, mean), (calls, bad) in zip(sites, features, counts, strict=True)
            if calls
        ]

    def _rows(self) -> list[np.ndarray]:
        """A row for each feature, and a row for calls and one for elements that are not finite."""
        return [parameter.asnumpy().reshape(-1, self.CAPACITY) for parameter in self.values]

    def _with_what_was_set_aside(
        self, worst: np.ndarray, tallies: np.ndarray, slots: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        aside = [parameter.asnumpy().reshape(-1, self.CAPACITY).copy() for parameter in self.aside]
        worst, tallies = worst.copy(), tallies.copy()
        worst[:, slots] = np.maximum(worst, aside[0])[:, slots]
        tallies[:, slots] = (tallies + aside[1])[:, slots]
        for parameter, rows in zip(self.aside, aside, strict=True):
            rows[:, slots] = 0
            write(parameter, rows.reshape(-1))
        self._is_aside = bool(aside[1][0].any())
        return worst, tallies

    def set_limits(
        self,
        limits: Iterable[tuple[Site, Limits]],
        scale: float,
        least: Sequence[tuple[Site, Limits]] = (),
        gate: Gate | None = None,
    ) -> None:
        """What the gate compares with from now on.

        Args:
            limits: The largest values that pass.
            scale: The loss scale of the next step.
            gate: Whose they are; it judges nothing else then.
            least: The smallest values that pass, see `too_small`; where there are none, all.
        """
        own = self.gates.number(gate)
        before = self._judged.copy()
        if gate is not None:
            self._judged[self._judged == own] = -1
        self._judged[self._sites.dead(self.CAPACITY)] = -1
        for site, limit in limits:
            for feature, column in zip(FEATURES, self._limits, strict=True):
                column[site.slot] = largest_raw(limit[feature], divisor(site.kind, scale), np.float32)
            self._judged[site.slot] = own
        write(self.limits, np.concatenate(self._limits))
        if not np.array_equal(before, self._judged):
            self._write_judged()
        self._set_least(list(least), scale, self._judged == own)

    def _write_judged(self) -> None:
        for state in self.guards:
            state.judge(self._judged)

    def _set_least(self, least: Sequence[tuple[Site, Limits]], scale: float, own: np.ndarray) -> None:
        columns = self._least
        if not (least or any(column[own].any() for column in columns)):
            return
        for column in columns:
            column[own] = 0
        for site, limit in least:
            for feature, column in zip(FEATURES, columns, strict=True):
                column[site.slot] = smallest_raw(limit[feature], divisor(site.kind, scale), np.float32)
        columns[1][:] = np.where(columns[0] > 0, np.maximum(columns[1], np.finfo(np.float32).tiny), columns[1])
        write(self.zero_passes, np.where(columns[0] > 0, -1, 0).astype(np.float32))
        write(self.least, np.concatenate(columns[1:]))

    def schedule_checksums(
        self,
        every: int,
        turn: int,
        everything: bool,  # noqa: FBT001
        gate: Gate | None = None,
    ) -> None:
        """Which results are checked in the next step.

        Args:
            every: Each is due in one step of so many; 0 for never.
            turn: Number of the step.
            everything: Whether all are due.
            gate: Whose; what nobody judges if not given.
        """
        turns = (np.arange(self.CAPACITY) + turn) % max(every, 1) == 0
        own = self._judged == gate.number if gate is not None else self._judged <= 0
        self._due = np.where(own, turns & (every > 0) | everything, self._due)
        write(self.due, self._due.astype(np.float32))

    def is_due(self, site: Site) -> bool:
        """Whether the product of `site` is checked in this step."""
        return bool(self._due[site.slot])

    def arm(self, armed: bool, gate: Gate | None = None) -> None:  # noqa: FBT001 - an on-off switch
        """Whether the gate may refuse an update."""
        (gate or self.gates.default).armed = armed
        self._arm_guards()

    def _arm_guards(self) -> None:
        for state in self.guards:
            state.arm(self._mode(state.gate))

    def refused(self, gate: Gate | None = None) -> int:
        """Updates refused so far, by all gates if none is given."""
        states = self.guards if gate is None else self._guards_of(gate)
        return sum(state.refused() for state in states)

    def updates(self, gate: Gate) -> int:
        """Updates that `gate` has judged since its host read last; waits for the graph that makes them."""
        return sum(state.unread() for state in self._guards_of(gate))

    def announce(self, gate: Gate | None = None) -> None:
        """Tells all ranks, with their next update, that this one has written a checkpoint."""
        for state in self._guards_of(gate):
            state.announce()

    def announced(self, gate: Gate | None = None) -> int:
        """A number that grows when any rank has announced a checkpoint."""
        return sum(state.announced() for state in self._guards_of(gate))

    def tell(self, message: np.ndarray, gate: Gate) -> None:
        """Tells all ranks something with their next update, see `asd.operators.table.message`; if `gate.carries`."""
        for state in self._guards_of(gate):
            state.tell(message)

    def heard(self, gate: Gate) -> np.ndarray | None:
        """The sum of what the ranks told with their last update, once; None where nothing was told.

        Of several guards, which tell the same, the first that was heard counts.
        """
        heard = next((sums for state in self._guards_of(gate) if (sums := state.heard()) is not None), None)
        if heard is not None:
            self.drop_message(gate)
        return heard

    def drop_message(self, gate: Gate) -> None:
        """Tells nothing any more, and forgets what was heard."""
        for state in self._guards_of(gate):
            state.drop_message()

    def begin_replay(self) -> None:
        """From now on every update is refused and not counted."""
        self._before_replay = [parameter.asnumpy().copy() for parameter in self.values]
        self.replaying = self._is_replay = True
        self._arm_guards()

    def end_replay(self) -> None:
        """Back to what was before `begin_replay`."""
        for parameter, before in zip(self.values, self._before_replay, strict=True):
            write(parameter, before)
        self.replaying = self._is_replay = False
        self._arm_guards()

    def newly_refused(self, gate: Gate) -> int:
        """Updates of `gate` that were refused since the last call."""
        before, gate.refused = gate.refused, self.refused(gate)
        return gate.refused - before


def _order(site: Site) -> int:
    """Where it is in the backward pass, which no operator tells: networks are mostly built from input to output.

    Gradients of parameters are looked at behind all others.
    """
    return (_LATER if site.kind in _AT_GATE else 0) - site.made
