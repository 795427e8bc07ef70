"""State of one guard in a `Table`: the Parameters that its gate in a compiled graph reads, and its counts."""

from collections.abc import Callable, Collection, Sequence
from enum import IntEnum
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from asd.operators.gate.gate import Gate

NOTHING, UNSEEN = -1.0, -2.0  # values of a slot that was not written; `UNSEEN` where an update needs one
FIRST_CALL, NEXT_CALL, CALLS_ALIKE = 3, 4, 256
"""A guard counts its calls by fours from 3 on: what is left of a division by 256 is never 0, 1 or that of the last."""
_FACTORS = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59)  # primes, so that misfits of ranks rarely cancel
_MANY = 1 << 20  # calls after which the counts begin from 0, before float32 can hold them no longer
_UNHELD = np.float32(-9)
OVERFLOWS = 1e30  # differences that rounding may make of numbers whose weighted sums may leave the range of float32
_MOST_UNREAD = 10  # unread updates after which the gate's listener is called


class Mode(IntEnum):
    """Mode of a gate; in `REPLAY`, a rerun, it refuses every update."""

    OFF, ON, REPLAY = range(3)


class Count(IntEnum):
    """Row of `Table.counts`, a number per guard: calls, updates, refused ones, misfits of this rank, first refused."""

    CALLS, UPDATES, REFUSED, MISSED, FIRST = range(5)


def new_parameter(name: str, values: np.ndarray) -> Parameter:
    """Returns a float32 Parameter that is in no list of weights."""
    return Parameter(Tensor(values.astype(np.float32).ravel()), name=f"asd_{name}", requires_grad=False)


def write(to: Parameter, array: np.ndarray) -> None:
    """Writes numbers into a Parameter."""
    # Not set_data: a compiled graph goes on writing to the old memory, and the host would read the new one for ever.
    to.copy_(Tensor(array))


def make_refusal(both: Callable[..., Any], either: Callable[..., Any], select: Callable[..., Any], larger: Any) -> Any:
    """Returns the two functions of a refusal, for compiled graphs and, made of NumPy's functions, for Python.

    The first one returns where values fit: NaN never does. The second one returns the values that are set aside and
    those that are left, where an update is refused, so that later steps are judged without what refused it.
    """

    def fits(worst, limits, least, *, lower=True):
        enough = worst >= least
        if lower:
            enough = either(enough, worst == NOTHING)
        return both(worst <= limits, enough)

    def set_aside(worst, aside, mine, initial, held, is_held):
        # Hold the other optimizers of the step too; those that are held already have held the others.
        left = larger(select(mine, initial, worst), held - 10 * is_held)
        return select(mine, larger(aside, worst), aside), left

    return fits, set_aside


fits, set_aside = make_refusal(np.logical_and, np.logical_or, np.where, np.maximum)


class LinkSums:
    """Sums of a reducer, of this rank and over all of them.

    Attributes:
        names: Names of its n gradients.
        shares: float32 of shape (2n,): this rank's shares of the differences between what goes in and what comes out,
            and what rounding may make of them.
        outputs: float32 of shape (n,): sums of what comes out.
        found: float32 of shape (1 + 2n,), in graphs: misfits of all ranks, and `shares` summed over them.
        call: float32 of shape (1,): number of the guard's call for which `shares` and `outputs` add up.
    """

    def __init__(self, weights: Sequence[Parameter], group: str, number: int) -> None:
        self.names, self.group, count = [weight.name for weight in weights], group, len(weights)
        self.halves = np.array([weight.dtype == ms.float16 for weight in weights])
        sizes = {"shares": 2 * count, "outputs": count, "found": 1 + 2 * count, "call": 1}
        made = [new_parameter(f"{name}_{number}", np.zeros(size)) for name, size in sizes.items()]
        self.shares, self.outputs, self.found, self.call = made
        self.seen: np.ndarray | None = None  # `found` of the last update, until it is judged

    def note(self, found: np.ndarray) -> None:
        """Keeps what an update has found; not of a rerun, nor where values refused it, which may overflow in sums."""
        if found[0] == 0 and found[1:].any():
            self.seen = found

    @staticmethod
    def misfits(shares: np.ndarray) -> np.ndarray:
        """Returns for each difference whether rounding does not explain it."""
        differences, allowed = np.split(shares, 2)
        with np.errstate(invalid="ignore"):
            fits: np.ndarray = np.abs(differences) <= allowed
        return ~fits

    def take(self) -> list[int]:
        """Returns the numbers of the gradients that the last update got wrong sums of; each update is judged once."""
        seen, self.seen = self.seen, None
        if seen is None:
            return []
        differences, allowed = np.split(seen[1:], 2)
        is_overflow = ~(allowed < OVERFLOWS) | (self.halves & ~np.isfinite(differences))
        return [int(i) for i in np.flatnonzero(self.misfits(seen[1:]) & ~is_overflow)]

    def words(self, wrong: Sequence[int]) -> dict[str, Any]:
        """Returns what ranks tell one another of the gradients with these numbers."""
        shares, bits = self.shares.asnumpy().reshape(2, -1), self.outputs.asnumpy().view(np.int32)
        return {"group": self.group, "shares": shares[:, wrong].tolist(), "outputs": bits[wrong].tolist()}


class GuardState:
    """State of one guard.

    Attributes:
        number: Number of the guard, below `Table.GUARDS`.
        gate: Gate that the guard belongs to.
        awaited: Slots that each call of the guard writes.
        weights: float32 of the shape of the table's `worst`: what a slot that fits counts.
        counted: The same numbers on the host.
        factor: What a site that fits counts, which differs from rank to rank, so that misfits do not cancel in the sum.
        peers: float32 of that shape, 1 for the slots that hold the other guards of its gate, else below all values.
        held: The same numbers on the host.
        is_alone: Whether its gate has no other guard.
        mode: Its mode.
        votes: Whether other ranks may refuse its updates.
        link: Sums of the reducer before it; None where none is checked.
        refused_before: Refused updates that are no longer in the counts.
        applied_before: The same of applied ones.
    """

    def __init__(self, size: int, number: int, gate: Gate, awaited: Collection[int], rank: int | None) -> None:
        self.number, self.gate, self.awaited = number, gate, list(awaited)
        exact = [each for each in _FACTORS if 14 * size * each < 1 << 24] or [1]  # sums that float32 holds
        self.votes, self.factor = rank is not None, 1 if rank is None else exact[rank % len(exact)]
        self.counted, self.held, self.is_alone = np.zeros(size, np.float32), np.full(size, _UNHELD), True
        self.weights = new_parameter(f"judged_{number}", self.counted)  # one graph may have several guards
        self.peers = new_parameter(f"peers_{number}", self.held)
        self.mode = Mode.OFF
        self.link: LinkSums | None = None
        self.refused_before = self.applied_before = self.calls_by_python = self._unread_by_python = 0
        self._at_read = np.array([FIRST_CALL, 0, 0, 0, 0], np.float32)

    def judge(self, weights: np.ndarray, peers: Sequence[int]) -> None:
        """Sets the weights of the slots, and the slots that hold the other guards of its gate."""
        held = np.full(len(weights), _UNHELD)
        held[list(peers)] = 1
        self.is_alone = not peers
        if not np.array_equal(weights, self.counted):
            self.counted = weights
            write(self.weights, weights)
        if not np.array_equal(held, self.held):
            self.held = held
            write(self.peers, held)

    def adds(self, row: Count, number: int, guards: int) -> np.ndarray:
        """Returns what to add to the counts for one `number` more in a row."""
        added = np.zeros((len(Count), guards))
        added[row, self.number] = number
        return added.ravel()

    def next_call(self) -> float:
        """Returns the number of a call that Python makes."""
        self.calls_by_python += 1
        return float((FIRST_CALL + NEXT_CALL * self.calls_by_python) % CALLS_ALIKE)

    @property
    def is_read_by_python(self) -> bool:
        """Returns whether Python alone made the updates since the last read, so that all values were read for them."""
        return self._unread_by_python > 0 and ms.get_context("mode") == ms.PYNATIVE_MODE

    def since_read(self, counts: np.ndarray) -> np.ndarray:
        """Returns the numbers in its column of the counts less those of the last read, for updates in graphs."""
        grown: np.ndarray = counts[:, self.number] - self._at_read
        return grown[: Count.FIRST]

    def first_refused(self, counts: np.ndarray) -> int:
        """Returns which update since the last read was refused first, from 1; 0 for none."""
        first = counts[Count.FIRST, self.number]
        return int(first - self._at_read[Count.UPDATES]) if first > 0 else 0

    def refused(self, counts: np.ndarray) -> int:
        """Returns the number of updates refused so far."""
        return self.refused_before + max(0, int(counts[Count.REFUSED, self.number]))

    def unread(self, counts: np.ndarray) -> int:
        """Returns the number of updates judged since the last read."""
        return int(self.since_read(counts)[Count.UPDATES]) + self._unread_by_python

    def have_read(self, counts: np.ndarray, on_device: Parameter) -> None:
        """Notes that the host has read the table."""
        self._at_read = counts[:, self.number].copy()
        self._unread_by_python = 0
        calls = self._at_read[Count.CALLS]
        sound = calls > 0 and calls % NEXT_CALL == FIRST_CALL  # else a broken device has written there
        if not sound or calls > _MANY or self._at_read[Count.FIRST]:
            self.begin_counts(counts, on_device, calls % CALLS_ALIKE if sound else FIRST_CALL)

    def begin_counts(self, counts: np.ndarray, on_device: Parameter, calls: float = FIRST_CALL) -> None:
        """Begins the counts from 0; the calls must be what all ranks have."""
        self.applied_before += max(0, int(self._at_read[Count.UPDATES] - self._at_read[Count.REFUSED]))
        self.refused_before += max(0, int(self._at_read[Count.REFUSED]))
        counts[:, self.number] = self._at_read = np.array([calls, 0, 0, 0, 0], np.float32)
        write(on_device, counts.ravel())

    def saw_update(self, *, refused: bool) -> None:
        """Counts an update that Python asked for, after the gate has judged it."""
        if self.mode == Mode.REPLAY:
            return
        self.refused_before += refused
        self.applied_before += not refused
        self._unread_by_python += 1
        if self._unread_by_python == _MOST_UNREAD and self.gate.listener is not None:
            self.gate.listener()
