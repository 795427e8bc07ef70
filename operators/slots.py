"""The table of slots: one per checkpoint, written by the device during a step, read by the host after it.

There are two tables with one face. `KernelTable` is the memory of the C++ library: reading it costs no copy.
`OperatorTable` is a handful of Parameters that MindSpore operators write; it serves every other device, and the CPU
without the library. A slot keeps the worst call of a step, so micro-batches and shared layers need no special care.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor

from asd.errors import ConfigError, UnsupportedError
from asd.operators import kernel
from asd.operators.product_check import schedule
from asd.reading import Capture, Reading, divisor
from asd.tiers import FEATURES

__all__ = ["KernelTable", "OperatorTable", "Site", "Table", "table", "use_backend"]

GATE = {"off": 0, "judge": 1, "replay": 2}
"""What the gate does; the numbers are `enum Gate` of kernel.cpp. In a replay it refuses every update, uncounted."""
Limits = Mapping[str, float]
"""Per feature of `asd.tiers.FEATURES` the largest value that the gate lets pass."""


class Site:
    """A checked place.

    Attributes:
        slot: Its number in the table.
        name: Its name in the network, which is known once `install` has seen the network it belongs to.
        kind: Which kind of tensor it sees, see `asd.reading.Reading`.
        claimed: Whether `install` has seen it.
        watched: Whether a monitor judges it.
    """

    def __init__(self, slot: int, name: str, kind: str) -> None:
        self.slot = slot
        self.name = name
        self.kind = kind
        self.claimed = False
        self.watched = False


class Table(Protocol):
    """What `StepMonitor` and the guard need of a table."""

    backend: str
    replaying: bool

    def new_site(self, name: str, kind: str = "B") -> Site:
        """A fresh slot under `name`."""

    def sites(self) -> list[Site]:
        """All living sites, in the order of their slots."""

    def read(self, sites: Sequence[Site]) -> list[Reading]:
        """The readings of those of `sites` that were checked since the last call; empties their slots."""

    def keep(self, size: int) -> None:
        """Of the first gradient of a step that breaks its limit at most `size` bytes are kept; 0 for nothing."""

    def captures(self, sites: Sequence[Site]) -> list[Capture]:
        """What was kept of the gradients of `sites` since the last call; asked before `read`, which drops it."""

    def set_limits(self, limits: Iterable[tuple[Site, Limits]], scale: float) -> None:
        """What the gate compares with from now on; `scale` is the loss scale of the next step."""

    def schedule_checksums(self, every: int, turn: int, everything: bool, tolerance: int) -> None:  # noqa: FBT001
        """Which products are checked in the next step; see `Schedule` of product_check.py."""

    def arm(self, armed: bool) -> None:  # noqa: FBT001 - an on-off switch
        """Whether the gate may refuse an update."""

    def refused(self) -> int:
        """Updates refused so far in this process."""

    def announce(self) -> None:
        """Tells all ranks, with their next update, that this one has written a checkpoint."""

    def announced(self) -> int:
        """A number that grows when any rank has announced a checkpoint."""

    def begin_replay(self) -> None:
        """From now on every update is refused and not counted, and nothing is kept."""

    def end_replay(self) -> None:
        """Back to what was before `begin_replay`."""

    def hashes(self, sites: Sequence[Site]) -> list[int]:
        """Of every bit of the gradients that `sites` saw in a replay since the last call; 64-bit numbers.

        Empty where gradients can't be hashed.
        """


class _Sites:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.living: weakref.WeakValueDictionary[int, Site] = weakref.WeakValueDictionary()

    def new(self, name: str, kind: str) -> Site:
        slot = next((i for i in range(self.capacity) if i not in self.living), None)
        if slot is None:
            raise UnsupportedError(f"checkpoint {name} can't be added: all {self.capacity} slots are in use.")
        site = Site(slot, name, kind)
        self.living[slot] = site
        return site

    def dead(self, used: int) -> np.ndarray:
        """Which of the first `used` slots belong to no living site, as numbers."""
        dead = np.ones(used, bool)
        dead[[slot for slot in list(self.living) if slot < used]] = False
        return np.flatnonzero(dead)

    def ordered(self) -> list[Site]:
        return [site for _, site in sorted(self.living.items())]


class KernelTable:
    """The slots of the C++ library, seen as one NumPy array."""

    backend = "kernel"

    def __init__(self, library: ctypes.CDLL) -> None:
        capacity = int(library.asd_capacity())
        memory = (ctypes.c_char * (capacity * kernel.SLOT_DTYPE.itemsize)).from_address(library.asd_slots())
        self._slots = np.ctypeslib.as_array(memory).view(kernel.SLOT_DTYPE)
        self._library = library
        self._header = library.asd_header().contents
        self._capture = library.asd_capture().contents
        self._sites = _Sites(capacity)
        self._unsupported = int(self._header.unsupported)
        self._hashes = np.ctypeslib.as_array((ctypes.c_uint64 * capacity).from_address(library.asd_hashes()))
        self._before_replay = (GATE["off"], 0)

    def new_site(self, name: str, kind: str = "B") -> Site:
        """See `Table`."""
        site = self._sites.new(name, kind)
        self._slots[site.slot] = (0.0, 0.0, 0, 0, 0, 0, 0.0, 0, math.inf, math.inf, math.inf, 0)
        self._drop_capture([site.slot])
        self._header.used = max(self._header.used, site.slot + 1)
        return site

    def sites(self) -> list[Site]:
        """See `Table`."""
        return self._sites.ordered()

    def read(self, sites: Sequence[Site]) -> list[Reading]:
        """See `Table`."""
        slots = [site.slot for site in sites]
        rows = self._slots[slots].tolist()
        for field in ("max_abs", "l2", "mean_abs", "non_finite", "calls"):
            self._slots[field][slots] = 0
        self._drop_capture(slots)
        return [
            Reading._make((site.name, *row[:8], site.kind)) for site, row in zip(sites, rows, strict=True) if row[3]
        ]

    def keep(self, size: int) -> None:
        """See `Table`."""
        self._header.capture_bytes = size

    def captures(self, sites: Sequence[Site]) -> list[Capture]:
        """See `Table`."""
        kept = self._capture
        if not kept.kept:
            return []
        site = next((site for site in sites if site.slot == kept.slot), None)
        if site is None:
            return []
        shape = tuple(kept.shape[: kept.dimensions])
        try:
            data = ctypes.string_at(kept.data, kept.bytes)
        except MemoryError:  # evidence is no reason to end a training
            return []
        else:
            return [Capture(site.name, kept.call, shape, kept.dtype.decode(), kept.offset, data)]
        finally:
            self._drop_capture([site.slot])

    def _drop_capture(self, slots: Sequence[int]) -> None:
        if self._capture.kept and self._capture.slot in slots:
            self._library.asd_release_capture()

    def set_limits(self, limits: Iterable[tuple[Site, Limits]], scale: float) -> None:
        """See `Table`."""
        self._slots["judged"][self._sites.dead(self._header.used)] = 0
        given = [(site.slot, limit, divisor(site.kind, scale)) for site, limit in limits]
        slots = [slot for slot, _, _ in given]
        for feature, column in zip(FEATURES, ("limit_max", "limit_l2", "limit_mean"), strict=True):
            self._slots[column][slots] = [_largest_raw(limit[feature], by) for _, limit, by in given]
        self._slots["judged"][slots] = 1

    def schedule_checksums(self, every: int, turn: int, everything: bool, tolerance: int) -> None:  # noqa: FBT001
        """See `Table`."""
        plan = schedule()
        plan.every, plan.turn, plan.all, plan.tolerance = every, turn, everything, tolerance

    def arm(self, armed: bool) -> None:  # noqa: FBT001 - an on-off switch
        """See `Table`."""
        self._header.armed = GATE["judge" if armed else "off"]

    def refused(self) -> int:
        """See `Table`."""
        return int(self._header.refused)

    def announce(self) -> None:
        """See `Table`."""
        self._header.announcing = 1

    def announced(self) -> int:
        """See `Table`."""
        return int(self._header.announced)

    @property
    def replaying(self) -> bool:
        """Whether a step is being replayed."""
        return bool(self._header.armed == GATE["replay"])

    def begin_replay(self) -> None:
        """See `Table`."""
        self._before_replay = (int(self._header.armed), int(self._header.capture_bytes))
        self._header.armed, self._header.capture_bytes = GATE["replay"], 0
        self._hashes[:] = 0

    def end_replay(self) -> None:
        """See `Table`."""
        self._header.armed, self._header.capture_bytes = self._before_replay
        self._unsupported = int(self._header.unsupported)  # told of the step itself already

    def hashes(self, sites: Sequence[Site]) -> list[int]:
        """See `Table`."""
        slots = [site.slot for site in sites]
        found: list[int] = self._hashes[slots].tolist()
        self._hashes[slots] = 0
        return found

    def unsupported(self) -> int:
        """Checks since the last call that met a type the kernel can't read."""
        new = int(self._header.unsupported) - self._unsupported
        self._unsupported += new
        return new


class OperatorTable:
    """The slots as Parameters. They belong to no Cell, so they appear in no checkpoint and in no list of weights.

    Attributes:
        max_abs, l2, mean_abs, non_finite, calls: float32 of shape (capacity,), written by the taps.
        limits: Three of the same shape, of the first three of these, already multiplied by the loss scale.
        judged: float32 of shape (capacity,), 1 where there is a limit; the gate leaves the others out.
        armed: float32 of shape (1,), one of `GATE`.
        refusals: float32 of shape (1,).
        announcing: float32 of shape (1,), 1 while this rank has something to announce.
        announcements: float32 of shape (1,), which grows when any rank did.
        due: float32 of shape (capacity,), 1 where a product is checked in the next step.
    """

    backend = "operators"
    CAPACITY = 1024

    def __init__(self) -> None:
        self._sites = _Sites(self.CAPACITY)
        self.max_abs, self.l2, self.mean_abs, self.non_finite, self.calls = self.values = tuple(
            self._parameter(name, 0.0, self.CAPACITY) for name in (*FEATURES, "non_finite", "calls")
        )
        self.limits = tuple(self._parameter(f"limit_{name}", math.inf, self.CAPACITY) for name in FEATURES)
        self.judged = self._parameter("judged", 0.0, self.CAPACITY)
        self.armed, self.refusals, self.announcing, self.announcements = (
            self._parameter(name, 0.0, 1) for name in ("armed", "refusals", "announcing", "announcements")
        )
        self._announced_at: int | None = None
        self._limits = [np.full(self.CAPACITY, np.inf, np.float32) for _ in FEATURES]
        self.due = self._parameter("due", 0.0, self.CAPACITY)
        self._judged = np.zeros(self.CAPACITY, np.float32)
        self._gate = self._gate_before_replay = GATE["off"]

    @staticmethod
    def _parameter(name: str, value: float, size: int) -> Parameter:
        return Parameter(Tensor(np.full(size, value, np.float32)), name=f"asd_{name}", requires_grad=False)

    def new_site(self, name: str, kind: str = "B") -> Site:
        """See `Table`."""
        site = self._sites.new(name, kind)
        self.read([site])
        if self._judged[site.slot]:
            self._judged[site.slot] = 0
            _write(self.judged, self._judged)
        return site

    def sites(self) -> list[Site]:
        """See `Table`."""
        return self._sites.ordered()

    def read(self, sites: Sequence[Site]) -> list[Reading]:
        """See `Table`."""
        slots = [site.slot for site in sites]
        columns = [parameter.asnumpy() for parameter in self.values]
        rows = np.stack([column[slots] for column in columns], axis=-1).tolist()
        if columns[4][slots].any():
            for parameter, column in zip(self.values, columns, strict=True):
                emptied = column.copy()
                emptied[slots] = 0
                _write(parameter, emptied)
        # No operator tells the order of the checks; a network is mostly built from its input to its output.
        return [
            Reading(site.name, row[0], row[1], int(row[3]), int(row[4]), -site.slot, mean_abs=row[2], kind=site.kind)
            for site, row in zip(sites, rows, strict=True)
            if row[4]
        ]

    def keep(self, size: int) -> None:
        """Nothing: a tensor is kept by the kernel only."""

    def captures(self, sites: Sequence[Site]) -> list[Capture]:
        """Always none, see `keep`."""
        return []

    def set_limits(self, limits: Iterable[tuple[Site, Limits]], scale: float) -> None:
        """See `Table`."""
        self._judged[self._sites.dead(self.CAPACITY)] = 0
        for site, limit in limits:
            for feature, column in zip(FEATURES, self._limits, strict=True):
                column[site.slot] = _largest_raw(limit[feature], divisor(site.kind, scale), np.float32)
            self._judged[site.slot] = 1
        for parameter, column in zip(self.limits, self._limits, strict=True):
            _write(parameter, column)
        _write(self.judged, self._judged)

    def schedule_checksums(self, every: int, turn: int, everything: bool, tolerance: int) -> None:  # noqa: FBT001
        """See `Table`; the tolerance is that of `OperatorCheck` always."""
        turns = (np.arange(self.CAPACITY) + turn) % max(every, 1) == 0
        _write(self.due, (turns & (every > 0) | everything).astype(np.float32))

    def arm(self, armed: bool) -> None:  # noqa: FBT001 - an on-off switch
        """See `Table`."""
        self._set_gate(GATE["judge" if armed else "off"])

    def _set_gate(self, gate: int) -> None:
        self._gate = gate
        _write(self.armed, np.full(1, gate, np.float32))

    def refused(self) -> int:
        """See `Table`."""
        return int(self.refusals.asnumpy()[0])

    def announce(self) -> None:
        """See `Table`."""
        if self._announced_at is None:
            self._announced_at = int(self.announcements.asnumpy()[0])
            _write(self.announcing, np.ones(1, np.float32))

    def announced(self) -> int:
        """See `Table`."""
        count = int(self.announcements.asnumpy()[0])
        if self._announced_at is not None and count > self._announced_at:
            self._announced_at = None
            _write(self.announcing, np.zeros(1, np.float32))
        return count

    @property
    def replaying(self) -> bool:
        """Whether a step is being replayed."""
        return self._gate == GATE["replay"]

    def begin_replay(self) -> None:
        """See `Table`."""
        self._gate_before_replay = self._gate
        self._set_gate(GATE["replay"])

    def end_replay(self) -> None:
        """See `Table`."""
        self._set_gate(self._gate_before_replay)

    def hashes(self, sites: Sequence[Site]) -> list[int]:
        """Always none: MindSpore has no operator that reads the bits of a tensor."""
        return []

    def unsupported(self) -> int:
        """Always 0: MindSpore itself refuses a type it can't read."""
        return 0


def _write(parameter: Parameter, array: np.ndarray) -> None:
    # Not set_data: a compiled graph goes on writing to the old memory, and the host would read the new one for ever.
    parameter.copy_(Tensor(array))


def _largest_raw(limit: float, scale: float, dtype: type[np.floating] = np.float64) -> float:
    """The largest raw value of `dtype` that does not break `limit`, by the arithmetic with which the host judges."""
    if math.isinf(limit) or (scale == 1.0 and dtype is np.float64):
        return limit
    with np.errstate(over="ignore"):
        raw = dtype(limit * scale)
        while float(raw) / scale > limit:
            raw = np.nextafter(raw, dtype(-np.inf))
        while not float(above := np.nextafter(raw, dtype(np.inf))) / scale > limit:
            raw = above
    return float(raw)


_table: KernelTable | OperatorTable | None = None


def table() -> KernelTable | OperatorTable:
    """The table of this process, chosen at the first call: the kernel's on a CPU if it was built, else operators."""
    global _table
    if _table is None:
        on_cpu = ms.get_context("device_target") == "CPU"
        _table = KernelTable(kernel.library) if on_cpu and kernel.library is not None else OperatorTable()
    return _table


def use_backend(name: str) -> None:
    """Chooses the backend by hand: `kernel` or `operators`. Taps made before stay on the one they were made for.

    Raises:
        ConfigError: Another name, or `kernel` where it was not built.
    """
    global _table
    if name == "operators":
        _table = OperatorTable()
    elif name == "kernel" and kernel.library is not None:
        _table = KernelTable(kernel.library)
    else:
        valid = "operators" + (", kernel" if kernel.library is not None else "; the C++ kernel was not built")
        raise ConfigError("backend", name, f"valid is {valid}")
