"""The table of slots: one per site, written during a step, read by the host after it."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mindspore import Tensor
from mindspore.ops import operations as P  # noqa: N812

from asd.errors import UnsupportedError
from asd.operators.gate import guard_state as states
from asd.operators.gate.gate import Gate, Gates
from asd.operators.gate.guard_state import NOTHING, UNSEEN, Count, GuardState, Mode, write
from asd.operators.gate.site import Site, Sites, largest_raw, smallest_raw
from asd.rules.reading import AVERAGED, GRADIENT, WEIGHT_GRADIENT, Reading, divisor

_LARGEST = float(np.finfo(np.float32).max)
_AT_GATE = (WEIGHT_GRADIENT, AVERAGED)
_LATER = 1 << 40
_NEAR = 2.0  # distance to the known number below which a guard has measured it
_MOST_GIVEN = 32


class Table:
    """Table of the slots, with the limits that the gate compares them with.

    Compiled graphs write Parameters, which belong to no Cell, so they appear in no checkpoint and in no list of
    weights. Python notes tensors, and reads all of them together. A slot keeps the largest call of a step, so
    micro-batches and shared layers need no special care. Where a method takes no gate, the default one is meant.

    An update needs that the slots which fit come to a number that is written with the limits. A site counts 1. Behind
    the sites are slots that hold a guard, slots for a known number that each guard measures with the gradients, and
    planted slots, which count more than all sites: one to five of them fit, in no two writes in a row as many.

    Attributes:
        worst: float32 of shape (`size`,), written by compiled graphs; `NOTHING` in slots that were not written.
        aside: The same of refused updates, until the host reads.
        bounds: The largest values that pass, already multiplied by the loss scale, the smallest ones, and the number
            that each guard needs, with the known one behind them; each of that shape, one after the other.
        counts: float32 of shape (5 * `GUARDS`,), by compiled graphs, see `Count`.
        guards: States of the living guards.
        replaying: Whether a step is being re-run.
        gates: Gates of the living monitors.
    """

    CAPACITY = 4096
    GUARDS = 64
    PLANTED, PLANTED_VALUE = 6, 3.0

    def __init__(self, capacity: int = 0) -> None:
        self.CAPACITY = capacity or self.CAPACITY  # the usual number if 0
        self.held_at, self.known_at = self.CAPACITY, self.CAPACITY + self.GUARDS
        self.planted_at = self.known_at + self.GUARDS
        size = self.size = self.planted_at + 2 * self.PLANTED
        self.link_at = self.GUARDS + 1
        self._sites, self.gates = Sites(self.CAPACITY), Gates(self.CAPACITY)
        self.guards: weakref.WeakValueDictionary[int, GuardState] = weakref.WeakValueDictionary()
        self._noted: list[tuple[list[int], Tensor]] = []  # noted by Python, and not read yet
        self._carried: list[tuple[Tensor, Callable[[np.ndarray], None]]] = []  # read with them
        self._turns: dict[int, int] = {}  # of those that Python noted since they were read, from 1
        self._turn = itertools.count(1)
        self._limits, self._least = np.full(size, np.inf, np.float32), np.full(size, NOTHING, np.float32)
        self._limits[self.held_at : self.known_at] = 0.5
        self._given: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=_MOST_GIVEN)  # limits since the last read
        self._judged = np.full(size, -1)  # by which gate
        self._is_replay = self.replaying = self._is_fresh = False
        self._before_replay: list[np.ndarray] = []
        self._writes = 0
        self._values = self._initial()  # read, and not judged yet
        counts = np.zeros((len(Count), self.GUARDS), np.float32)
        counts[Count.CALLS] = states.FIRST_CALL
        self._device = [self._values.copy(), np.full(size, NOTHING, np.float32), counts]  # as last read
        self._kept = self._device[1].copy()  # of updates that Python refused
        self.worst, self.aside, self.counts = map(states.new_parameter, ("worst", "aside", "counts"), self._device)
        self.bounds = states.new_parameter("bounds", self._new_bounds())

    def __deepcopy__(self, memo: Any) -> Table:
        """Returns itself: a copy of a network is checked by the same table."""
        return self

    def make_room(self, count: int) -> None:
        """Grows if fewer than `count` slots are free; not while a guard lives, whose graph has the numbers of slots."""
        needed = len(self._sites.living) + count
        if needed > self.CAPACITY and self.guards:
            gc.collect()  # of trainings that are over
        if needed <= self.CAPACITY or self.guards:
            return
        larger, self._sites.capacity = vars(Table(2 * needed)), 2 * needed
        for name in ("worst", "aside", "counts", "bounds"):  # cells hold these Parameters
            vars(self)[name].set_data(larger.pop(name), slice_shape=True)
        vars(self).update({name: made for name, made in larger.items() if name not in ("_sites", "gates", "guards")})

    def new_site(self, name: str, kind: str = GRADIENT) -> Site:
        """Returns a fresh slot under `name`."""
        site = self._sites.new(name, kind)
        if site.made > site.slot + 1:  # another one had it before
            self._look()
            self._empty(np.array([site.slot]))
        if self._judged[site.slot] >= 0:
            self._judged[site.slot] = -1
            self._weigh()
        return site

    def new_gate(self) -> Gate:
        """Returns a fresh gate."""
        gate = self.gates.new()
        self._judged[self._judged == gate.number] = -1
        return gate

    def new_guard(self, sites: Sequence[Site], rank: int | None = None) -> GuardState:
        """Returns a new state for a guard that is called with the gradients of `sites`; it has the default gate.

        `rank` is that of this process where other ranks may refuse its updates.

        Raises:
            UnsupportedError: There are too many guards.
        """
        number = next((i for i in range(self.GUARDS) if i not in self.guards), None)
        if number is None:
            raise UnsupportedError(f"one more optimizer can't be guarded: all {self.GUARDS} guards are in use.")
        awaited = [site.slot for site in sites]
        state = self.guards[number] = GuardState(self.size, number, self.gates.default, awaited, rank)
        if self._device[2][Count.UPDATES, number]:  # of an earlier guard
            self._look()
            state.begin_counts(self._device[2], self.counts)
        self._weigh()
        return state

    def give_guard(self, state: GuardState, gate: Gate) -> None:
        """Hands the guard with `state` over to `gate`."""
        state.gate = gate
        self._weigh()

    def guards_of(self, gate: Gate | None) -> list[GuardState]:
        """Returns the states of the guards of `gate`."""
        return [state for state in self.guards.values() if state.gate is (gate or self.gates.default)]

    def _weigh(self) -> None:
        """Sets the modes of the guards, their peers and what they judge, and writes the numbers that they need."""
        for state in list(self.guards.values()):  # one may be collected meanwhile
            state.mode = Mode.REPLAY if self._is_replay else Mode(state.gate.armed)
            weights = np.zeros(self.size, np.float32)
            weights[self.planted_at :] = self.size
            if state.mode != Mode.OFF:
                weights[self._own(state)] = 1
                weights[self.known_at + state.number] *= self.size  # else limits that are all 1 would let it pass
            others = [other.number for other in self.guards_of(state.gate) if other is not state]
            state.judge(weights * state.factor, [self.held_at + number for number in others])
        write(self.bounds, self._new_bounds())

    def _own(self, state: GuardState) -> np.ndarray:
        """Returns which slots `state` judges."""
        own: np.ndarray = self._judged == state.gate.number
        own[self.held_at + state.number] = True
        own[self.known_at + state.number] = bool(state.awaited)
        return own

    def sites(self) -> list[Site]:
        """Returns all living sites, in the order of their slots."""
        return self._sites.ordered()

    def _initial(self) -> np.ndarray:
        """Returns the slots before a step; what the only guard of a gate is called with is awaited."""
        initial = np.full(self.size, NOTHING, np.float32)
        for state in self.guards.values():
            if state.is_alone and state.mode != Mode.OFF:
                initial[[slot for slot in state.awaited if self._judged[slot] == state.gate.number]] = UNSEEN
        initial[self.held_at : self.known_at] = 0
        initial[self.known_at :] = UNSEEN
        initial[self.planted_at :] = self.PLANTED_VALUE
        return initial

    def _expect_known(self, slots: Any) -> float:
        """Returns the next known number, which `slots` are to show."""
        self._writes += 1
        number = 4.0 + 8 * (self._writes % 31)
        self._limits[slots], self._least[slots] = number + _NEAR, number - _NEAR
        return number

    def _new_bounds(self) -> np.ndarray:
        numbers = np.zeros(self.size, np.float32)
        numbers[self.GUARDS] = self._expect_known(slice(self.known_at, self.planted_at))
        fitting = 1 + self._writes % (self.PLANTED - 1)
        misses = np.arange(self.PLANTED) >= fitting
        self._limits[self.planted_at :] = *(self.PLANTED_VALUE - misses), *[np.inf] * self.PLANTED
        self._least[self.planted_at :] = *[NOTHING] * self.PLANTED, *(self.PLANTED_VALUE + misses)
        for number, state in self.guards.items():
            needed = state.counted[: self.planted_at].sum() + 2 * fitting * state.counted[self.planted_at]
            numbers[number] = -1 if state.mode == Mode.REPLAY else needed
            if state.link is not None and state.mode == Mode.ON:
                numbers[self.link_at + number] = 1
                numbers[self.link_at + self.GUARDS + number] = len(state.link.names) + fitting
        self._given.append((self._limits.copy(), self._least.copy()))
        return np.concatenate([self._limits, self._least, numbers])

    # What Python does in a step.

    def note(self, slots: Sequence[int], values: Tensor) -> None:
        """Takes the values of `slots`, float32 of shape (n,), which stay on the device until they are read."""
        self._noted.append((list(slots), values))
        for slot in slots:
            self._turns.setdefault(slot, next(self._turn))
        if len(self._noted) >= self.CAPACITY:  # never read
            self._look()

    def carry(self, values: Tensor, take: Callable[[np.ndarray], None]) -> None:
        """Has `values`, float32 of shape (n,), read with the slots, and handed to `take`."""
        self._carried.append((values, take))

    def _look(self) -> None:
        """Copies the values of Python and of compiled graphs to the host, in one read from the device."""
        noted, self._noted, carried, self._carried = self._noted, [], self._carried, []
        links = [state.link for _, state in sorted(self.guards.items()) if state.link is not None]
        carried += [(link.found.value(), link.note) for link in links]
        parts = [*(values for _, values in noted), self.worst.value(), self.aside.value(), self.counts.value()]
        found = P.Concat()([*parts, *(values for values, _ in carried)]).asnumpy()
        for values, take in reversed(carried):
            found, own = np.split(found, [-values.size])
            take(own)
        slots = [slot for each, _ in noted for slot in each]
        with np.errstate(invalid="ignore"):
            np.maximum.at(self._values, slots, found[: len(slots)])
        worst, aside, counts = np.split(found[len(slots) :], (self.size, 2 * self.size))
        self._device = [worst.copy(), aside.copy(), np.nan_to_num(counts.reshape(len(Count), -1), nan=-1.0)]

    def _take(self, slots: np.ndarray) -> None:
        """Moves the values of `slots` to those on the host, and empties the slots."""
        worst, initial = self._device[0], self._initial()
        self._values[slots] = _larger(self._values[slots], worst[slots])
        slots = np.append(slots, np.arange(self.planted_at, self.size))  # a broken device may have written there too
        if (worst[slots] != initial[slots]).any():
            worst[slots] = initial[slots]
            write(self.worst, worst)

    def expect(self, state: GuardState, missing: Sequence[Site]) -> float:
        """Returns a number that Python measures with the gradients of an update, of which some may be missing."""
        self._values[self.known_at + state.number] = UNSEEN
        self._values[[site.slot for site in missing]] = NOTHING
        return self._expect_known(self.known_at + state.number)

    def excuse(self, state: GuardState, missing: Sequence[Site], known: float) -> None:
        """Awaits no value of an update that Python could not measure."""
        self._values[[site.slot for site in missing]] = NOTHING
        self._values[self.known_at + state.number] = known

    def misfits(self, state: GuardState) -> int:
        """Returns how many values that `state` judges do not fit."""
        own = np.flatnonzero(self._own(state))
        self._look()
        self._take(own)
        fit = states.fits(self._values, self._limits, self._least)[own]
        if state.mode == Mode.ON and not fit[own == self.known_at + state.number].all():
            state.gate.fault = "measured"
        return 0 if state.mode == Mode.OFF else np.count_nonzero(~fit)

    def refuse(self, state: GuardState) -> None:
        """Sets the values of an update that Python refuses aside, and holds the other optimizers of its step."""
        mine, held = self._own(state), self._values[self.held_at + state.number]
        self._kept, self._values = states.set_aside(self._values, self._kept, mine, self._initial(), state.held, held)
        if not (state.is_alone or held > 0):  # they may be compiled
            self._device[0] = _larger(self._device[0], state.held)
            write(self.worst, self._device[0])

    # What the host does after it.

    def read(self, sites: Sequence[Site], gate: Gate | None = None) -> list[Reading]:
        """Returns the readings of those of `sites` that were checked since the last call; empties their slots.

        What a refused update left is among them: the gate has set it aside, so that later steps are judged without it.
        """
        own, guards = gate or self.gates.default, self.guards_of(gate)
        is_known = self._is_fresh or (guards and all(each.is_read_by_python for each in guards))
        if self._noted or self._carried or not is_known:  # else all were read before the update
            self._look()
        self._is_fresh, counts = False, self._device[2]
        own.updates = max((state.unread(counts) for state in guards), default=0)
        for state in () if self._is_replay else guards:  # whose counts will be put back
            own.fault = own.fault or self._disagreement(state)
            state.have_read(counts, self.counts)
        self._given = deque([self._given[-1]], _MOST_GIVEN)
        slots = [site.slot for site in sites]
        also = [at + state.number for state in guards for at in (self.held_at, self.known_at)]
        return [
            Reading(site.name, value, self._turns.pop(site.slot, 0) or _order(site), site.kind)
            for site, value in zip(sites, self._empty(np.array(slots + also, int)).tolist(), strict=False)
            if not value < 0
        ]

    def drop_overflow(self, sites: Sequence[Site]) -> bool:
        """Empties the slots of `sites` if the value of one is not finite; returns whether it did."""
        self._look()
        found = _larger(self._values, self._device[0])[[site.slot for site in sites]]
        return not np.isfinite(found).all() and bool(self.read(sites))

    def _empty(self, slots: np.ndarray) -> np.ndarray:
        """Returns the values of `slots`, those of refused updates too, and empties the slots."""
        aside = self._device[1]
        self._take(slots)
        values: np.ndarray = _larger(_larger(self._values[slots], self._kept[slots]), aside[slots])
        self._values[slots], self._kept[slots] = self._initial()[slots], NOTHING
        if (aside[slots] != NOTHING).any():
            aside[slots] = NOTHING
            write(self.aside, aside)
        return values

    def _disagreement(self, state: GuardState) -> str:
        """Returns how the device contradicts itself about the updates of `state` since the last read.

        `measured`: the known number came out different. `decided`: an update was applied or refused against the values
        that were read, by any limits that were written since.
        """
        worst, aside, counts = self._device
        known, (calls, updates, refused, missed) = self.known_at + state.number, state.since_read(counts)
        seen, given = _larger(worst, aside), self._given
        if state.mode != Mode.ON or len(given) == _MOST_GIVEN or (seen[known] < 0 and calls == 0):
            return ""
        if not (updates >= 1 and updates >= refused >= 0 and calls > 0):
            return "decided"
        if state.awaited and not any(least[known] <= seen[known] <= most[known] for most, least in given):
            return "measured"
        if refused == 0 and state.is_alone:  # nothing but the gate writes what it awaits
            mine = np.flatnonzero(self._initial() == UNSEEN)
            mine = mine[np.isin(mine, state.awaited)]
            could = any((worst[mine] <= most[mine]).all() for most, _ in given)
        else:
            mine = self._own(state) & (np.arange(self.size) != known)
            votes = missed if state.votes else refused == updates  # where another rank may have refused it
            could = not votes or not all(states.fits(seen, *each)[mine].all() for each in given)
        return "" if could else "decided"

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
        before = self._judged.copy()
        if gate is not None:
            self._judged[self._judged == own] = -1
        self._judged[self._sites.dead()] = -1
        slots, raw = _raw(largest_raw, limits, scale)
        self._limits[slots] = np.minimum(raw, _LARGEST)  # infinite values never pass
        self._judged[slots] = own
        self._least[self._judged == own] = NOTHING
        slots, raw = _raw(smallest_raw, least, scale)
        self._least[slots] = raw
        if np.array_equal(before, self._judged):
            write(self.bounds, self._new_bounds())
        else:
            self._weigh()

    def forget_limits(self) -> None:
        """Has the next read explain the gate's decisions by the limits alone that are set from now on."""
        self._given.clear()

    def arm(self, armed: bool, gate: Gate | None = None) -> None:  # noqa: FBT001 - an on-off switch
        """Sets whether the gate may refuse an update."""
        (gate or self.gates.default).armed = armed
        self._weigh()

    def refused(self, gate: Gate | None = None) -> int:
        """Updates refused so far, by all gates if none is given."""
        guards = list(self.guards.values()) if gate is None else self.guards_of(gate)
        counts = self._counted(guards)
        return sum(state.refused(counts) for state in guards)

    def updates(self, gate: Gate) -> int:
        """Updates that `gate` has judged since its host read last; waits for the graph that makes them."""
        guards = self.guards_of(gate)
        counts = self._counted(guards)
        return sum(state.unread(counts) for state in guards)

    def applied(self, gate: Gate) -> int:
        """Updates that `gate` has let pass so far, of those that the host has read."""
        counts, found = self._device[2], 0
        for state in self.guards_of(gate):
            grown = counts[Count.UPDATES, state.number] - counts[Count.REFUSED, state.number]
            found += state.applied_before + max(0, int(grown))
        return found

    def since_read(self, gate: Gate) -> tuple[int, int]:
        """Returns the updates of one guard between the last read and the last look, and the first refused one, or 0."""
        guards, counts = self.guards_of(gate), self._device[2]
        first = [place for state in guards if (place := state.first_refused(counts)) > 0]
        return max((state.unread(counts) for state in guards), default=0), min(first, default=0)

    def _counted(self, guards: Sequence[GuardState]) -> np.ndarray:
        if not all(state.is_read_by_python for state in guards):  # else nothing is read from the device for it
            self._look()
        return self._device[2]

    def newly_refused(self, gate: Gate) -> int:
        """Updates of `gate` that were refused since the last call; a `read` before any other step costs no wait."""
        before, gate.refused = gate.refused, self.refused(gate)
        self._is_fresh = bool(self.guards_of(gate))
        return gate.refused - before

    def align(self, gate: Gate, step: int) -> None:
        """Counts calls from a number that all ranks know: one that lost its count would refuse with all of them."""
        for state in self.guards_of(gate):
            state.calls_by_python = step
            state.begin_counts(self._device[2], self.counts, states.FIRST_CALL + states.NEXT_CALL * (step % 61))
            if state.link is not None:  # the next call may get the number of the last one, whose sums it must not add
                write(state.link.call, np.full(1, -1, np.float32))

    def expire(self) -> None:
        """Notes that a step runs before the next `read`, or may do so."""
        self._is_fresh = False

    def begin_replay(self) -> None:
        """Refuses every update from now on, without counting it."""
        self._look()
        self._before_replay = [*(each.copy() for each in self._device), self._values.copy(), self._kept.copy()]
        self.replaying = self._is_replay = True
        self._weigh()

    def end_replay(self) -> None:
        """Restores the state before `begin_replay`."""
        self._noted = []
        *self._device, self._values, self._kept = self._before_replay
        for to, array in zip((self.worst, self.aside, self.counts), self._device, strict=True):
            write(to, array.ravel())
        self.replaying = self._is_replay = False
        self._weigh()


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
    """Returns the place of a site in a compiled backward pass: a later forward call comes earlier."""
    # Gradients of parameters come last. No code of ours calls them, nor what comes from a compiler's cache: the
    # order is that in which they are made.
    return (_LATER if site.kind in _AT_GATE else 0) - (site.called or site.made)
