"""The table of slots: one per site, written during a step, read by the host after it."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor
from mindspore.ops import operations as P  # noqa: N812

from asd.operators.gate.gate import Gate
from asd.operators.gate.gates import Gates
from asd.operators.gate.guard_state import OFF, ON, REPLAY, GuardState, new_parameter, write
from asd.operators.gate.site import Site, Sites, largest_raw, smallest_raw
from asd.rules.reading import AVERAGED, GRADIENT, WEIGHT_GRADIENT, Reading, divisor

NOTHING = -1.0
"""Value of a slot that was not written."""
_LARGEST = float(np.finfo(np.float32).max)
_AT_GATE = (WEIGHT_GRADIENT, AVERAGED)
_LATER = 1 << 40


class Table:
    """Table of the slots, with the limits that the gate compares them with.

    Compiled graphs write Parameters, which belong to no Cell, so they appear in no checkpoint and in no list of
    weights. Python notes tensors, and reads all of them together. A slot keeps the largest call of a step, so
    micro-batches and shared layers need no special care. Where a method takes no gate, the default one is meant.

    Attributes:
        worst: float32 of shape (capacity,), written by compiled graphs; `NOTHING` in slots that were not written.
        aside: The same of refused updates, until the host reads.
        limits: The largest values that pass, of that shape, already multiplied by the loss scale.
        least: The smallest values that pass.
        held: float32 of shape (`GUARDS`,), 1 for each guard whose next update may belong to a step that was refused.
        guards: States of the living guards.
        replaying: Whether a step is being re-run.
        gates: Gates of the living monitors.
    """

    CAPACITY = 4096
    GUARDS = 64

    def __init__(self) -> None:
        size = self.CAPACITY
        self._sites = Sites(size)
        self.worst, self.aside = (new_parameter(name, NOTHING, size) for name in ("worst", "aside"))
        self.limits, self.least = new_parameter("limits", math.inf, size), new_parameter("least", 0.0, size)
        self.held, self.guards = new_parameter("held", 0.0, self.GUARDS), weakref.WeakSet[GuardState]()
        self.gates = Gates(size)
        self._noted: list[tuple[list[int], Tensor]] = []  # noted by Python, and not read yet
        self._turns: dict[int, int] = {}  # of those that Python noted since they were read, from 1
        self._turn = itertools.count(1)
        self._values = np.full(size, NOTHING, np.float32)  # read, and not judged yet
        self._refused_at_read, self._is_aside, self._is_taken = 0, False, False
        self._limits, self._least = np.full(size, np.inf, np.float32), np.zeros(size, np.float32)
        self._judged = np.full(size, -1)  # by which gate
        self._is_replay = False
        self._before_replay: list[np.ndarray] = []
        self.replaying = False

    def __deepcopy__(self, memo: Any) -> Table:
        """Returns itself: a copy of a network is checked by the same table."""
        return self

    def new_site(self, name: str, kind: str = GRADIENT) -> Site:
        """Returns a fresh slot under `name`."""
        site = self._sites.new(name, kind)
        self._read([site], self.refused())
        if self._judged[site.slot] >= 0:
            self._judged[site.slot] = -1
            self._write_judged()
        return site

    def new_gate(self) -> Gate:
        """Returns a fresh gate."""
        gate = self.gates.new()
        self._judged[self._judged == gate.number] = -1
        return gate

    def new_guard(self, number: int) -> GuardState:
        """Returns a new state for the guard with this number; it belongs to the default gate."""
        state = GuardState(self.CAPACITY, self.GUARDS, number % self.GUARDS, self.gates.default)
        self.guards.add(state)
        self._share_holds()
        state.arm(self._mode(self.gates.default))
        state.judge(self._judged)
        return state

    def give_guard(self, guard: Any, gate: Gate) -> None:
        """Hands `guard`, the gate cell of an optimizer, over to `gate`."""
        guard.state.gate = gate
        self._share_holds()
        guard.state.arm(self._mode(gate))
        guard.state.judge(self._judged)

    def _share_holds(self) -> None:
        """Gives each guard the numbers of its peers; with one optimizer, the guard need not ask for others."""
        for state in self.guards:
            peers = {other.number for other in self.guards if other.gate is state.gate} - {state.number}
            state.share(peers)

    def _guards_of(self, gate: Gate | None) -> list[GuardState]:
        own = gate or self.gates.default
        return [state for state in self.guards if state.gate is own]

    def _mode(self, gate: Gate) -> int:
        return REPLAY if self._is_replay else ON if gate.armed else OFF

    def sites(self) -> list[Site]:
        """Returns all living sites, in the order of their slots."""
        return self._sites.ordered()

    # What Python does in a step.

    def note(self, sites: Sequence[Site], values: Tensor) -> None:
        """Takes the values of `sites`, float32 of shape (n,), which stay on the device until they are read."""
        slots = [site.slot for site in sites]
        self._noted.append((slots, values))
        for slot in slots:
            self._turns.setdefault(slot, next(self._turn))
        if len(self._noted) >= self.CAPACITY:  # never read
            self._take([])

    def _take(self, slots: Any) -> None:
        """Moves the values of `slots` to the host, in one read from the device."""
        noted, self._noted = self._noted, []
        if noted:
            found = P.Concat()([*(values for _, values in noted), self.worst.value()]).asnumpy()
            own = [slot for each, _ in noted for slot in each]
            with np.errstate(invalid="ignore"):
                np.maximum.at(self._values, own, found[: len(own)])
            written = found[len(own) :]
        else:
            written = self.worst.asnumpy()
        if (written[slots] != NOTHING).any():
            self._values[slots] = _larger(self._values[slots], written[slots])
            written = written.copy()
            written[slots] = NOTHING
            write(self.worst, written)

    def broken(self, state: GuardState) -> bool:
        """Returns whether a value that the gate of `state` judges is beyond its limits."""
        own = np.flatnonzero(self._judged == state.gate.number)
        self._take(own)
        values = self._values[own]
        fits = (values <= self._limits[own]) & ((values >= self._least[own]) | (values == NOTHING))
        return not fits.all()  # NaN does not fit

    def hold(self, state: GuardState, *, refused: bool) -> bool:
        """Returns whether an update is refused, for its own values or with another optimizer of the same step.

        Sets the values of a refused update aside, so that later steps are judged without them.
        """
        if state.mode != ON:
            return state.mode == REPLAY
        held = None if state.is_alone else self.held.asnumpy().copy()
        is_held = held is not None and held[state.number] > 0
        if not (refused or is_held):
            return False
        own = np.flatnonzero(self._judged == state.gate.number)
        aside = self.aside.asnumpy().copy()
        aside[own] = _larger(aside[own], self._values[own])
        write(self.aside, aside)
        self._values[own] = NOTHING
        if held is not None:
            if not is_held:
                held = np.maximum(held, state.peers.asnumpy())
            held[state.number] = 0
            write(self.held, held)
        return True

    # What the host does after it.

    def read(self, sites: Sequence[Site], gate: Gate | None = None) -> list[Reading]:
        """Returns the readings of those of `sites` that were checked since the last call; empties their slots.

        What a refused update left is among them: the gate has set it aside, so that later steps are judged without it.
        """
        states, refused = self._guards_of(gate), self.refused()
        own, self._is_taken = gate or self.gates.default, bool(states)
        own.updated = False
        for state in states:
            own.updated |= state.unread() > 0
            self._is_taken &= state.is_read_by_python  # which read all of them before its update
            state.have_read()
        numbers = [state.number for state in states if not state.is_alone]
        if numbers and (held := self.held.asnumpy().copy())[numbers].any():
            held[numbers] = 0
            write(self.held, held)
        return self._read(sites, refused)

    def _read(self, sites: Sequence[Site], refused: int) -> list[Reading]:
        slots = [site.slot for site in sites]
        if self._noted or not self._is_taken:
            self._take(slots)
        values = self._values[slots]
        if refused != self._refused_at_read or self._is_aside:
            self._refused_at_read = refused
            aside = self.aside.asnumpy().copy()
            values = _larger(values, aside[slots])
            aside[slots] = NOTHING
            write(self.aside, aside)
            self._is_aside = bool((aside != NOTHING).any())
        self._values[slots] = NOTHING
        return [
            Reading(site.name, value, self._turns.pop(site.slot, 0) or _order(site), site.kind)
            for site, value in zip(sites, values.tolist(), strict=True)
            if value != NOTHING
        ]

    def set_limits(
        self,
        limits: Sequence[tuple[Site, float]],
        scale: float,
        least: Sequence[tuple[Site, float]] = (),
        gate: Gate | None = None,
    ) -> None:
        """Sets the limits that the gate compares with from now on.

        Args:
            limits: The largest values that pass.
            scale: The loss scale of the next step.
            least: The smallest values that pass; a site without one has no lower limit.
            gate: The gate of these limits, which then judges nothing else; the default one if None.
        """
        own = (gate or self.gates.default).number
        before, limits_before = self._judged.copy(), self._limits.copy()
        if gate is not None:
            self._judged[self._judged == own] = -1
        self._judged[self._sites.dead()] = -1
        slots, raw = _raw(largest_raw, limits, scale)
        self._limits[slots] = np.minimum(raw, _LARGEST)  # infinite values never pass
        self._judged[slots] = own
        if not np.array_equal(limits_before, self._limits):
            write(self.limits, self._limits)
        if not np.array_equal(before, self._judged):
            self._write_judged()
        mine, least_before = self._judged == own, self._least.copy()
        self._least[mine] = 0
        slots, raw = _raw(smallest_raw, least, scale)
        self._least[slots] = raw
        if not np.array_equal(least_before, self._least):
            write(self.least, self._least)

    def _write_judged(self) -> None:
        for state in self.guards:
            state.judge(self._judged)

    def arm(self, armed: bool, gate: Gate | None = None) -> None:  # noqa: FBT001 - an on-off switch
        """Sets whether the gate may refuse an update."""
        (gate or self.gates.default).armed = armed
        self._arm_guards()

    def _arm_guards(self) -> None:
        for state in self.guards:
            state.arm(self._mode(state.gate))

    def refused(self, gate: Gate | None = None) -> int:
        """Updates refused so far, by all gates if none is given."""
        states = self.guards if gate is None else self._guards_of(gate)
        return sum(map(GuardState.refused, states))

    def updates(self, gate: Gate) -> int:
        """Updates that `gate` has judged since its host read last; waits for the graph that makes them."""
        return sum(state.unread() for state in self._guards_of(gate))

    def newly_refused(self, gate: Gate) -> int:
        """Updates of `gate` that were refused since the last call."""
        before, gate.refused = gate.refused, self.refused(gate)
        return gate.refused - before

    def begin_replay(self) -> None:
        """Refuses every update from now on, without counting it."""
        self._take([])
        self._before_replay = [self.worst.asnumpy().copy(), self._values.copy()]
        self.replaying = self._is_replay = True
        self._arm_guards()

    def end_replay(self) -> None:
        """Restores the state before `begin_replay`."""
        self._noted = []
        written, self._values = self._before_replay
        write(self.worst, written)
        self.replaying = self._is_replay = False
        self._arm_guards()


def _larger(one: Any, other: Any) -> Any:
    """Returns the larger numbers, element by element; NaN stays NaN."""
    with np.errstate(invalid="ignore"):
        return np.maximum(one, other)


def _raw(
    find: Callable[[np.ndarray, np.ndarray], np.ndarray], limits: Sequence[tuple[Site, float]], scale: float
) -> tuple[list[int], np.ndarray]:
    """Slots, and what the gate compares their values with."""
    slots, values = [], np.ones((2, len(limits)))
    for i, (site, limit) in enumerate(limits):
        slots.append(site.slot)
        values[:, i] = limit, divisor(site.kind, scale)
    return slots, find(*values)


def _order(site: Site) -> int:
    """Returns the place of a site in a compiled backward pass: a later forward call comes earlier.

    Gradients of parameters are looked at behind all others. They, and what comes from a compiler's cache, are called by
    no code of ours: networks are mostly built from input to output.
    """
    return (_LATER if site.kind in _AT_GATE else 0) - (site.called or site.made)
