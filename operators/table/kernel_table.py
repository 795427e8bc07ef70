"""The slots in the memory of the C++ library: the device writes them, and reading them costs no copy."""

from __future__ import annotations

import ctypes
import math
import operator
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np

from asd.operators.kernel import library as kernel
from asd.operators.kernel.product import schedule
from asd.operators.table import unread
from asd.operators.table.gate import Gate, GateCounts
from asd.operators.table.gates import Gates
from asd.operators.table.message import ANNOUNCEMENT
from asd.operators.table.site import Limits, Site, Sites, largest_raw, smallest_raw
from asd.operators.table.twins import Twins
from asd.operators.table.unread import Unread
from asd.rules.readings.features import FEATURES
from asd.rules.readings.reading import GRADIENT, OUTPUT, Capture, KeptTensor, OperatorCall, Reading, divisor

__all__ = ["KernelTable"]

_SLOT = operator.attrgetter("slot")
_RECENT_CALLS = 256
"""Of which the time counts."""


class KernelTable:
    """The slots of the C++ library, seen as one NumPy array."""

    backend = "kernel"

    def __init__(self, library: ctypes.CDLL) -> None:
        capacity = int(library.asd_capacity())
        memory = (ctypes.c_char * (capacity * kernel.SLOT_DTYPE.itemsize)).from_address(library.asd_slots())
        self._slots = np.ctypeslib.as_array(memory).view(kernel.SLOT_DTYPE)
        self._library = library
        self._header = library.asd_header().contents
        self.capture = library.asd_capture().contents
        self.wrong = library.asd_wrong_call().contents
        self._sites = Sites(capacity)
        self._twins: dict[int, Twins] = {}
        self._unsupported = int(self._header.unsupported)
        self._hashes = np.ctypeslib.as_array((ctypes.c_uint64 * capacity).from_address(library.asd_hashes()))
        self._kept_before_replay = self._lost = 0
        self.replaying = False
        gates = (ctypes.c_char * (library.asd_gate_capacity() * kernel.GATE_DTYPE.itemsize)).from_address(
            library.asd_gates()
        )
        self._gates = np.ctypeslib.as_array(gates).view(kernel.GATE_DTYPE)
        guards = (ctypes.c_int64 * library.asd_guard_capacity()).from_address(library.asd_gate_of_guards())
        self._gate_of = np.ctypeslib.as_array(guards)
        self.gates = Gates(len(self._gates))
        self._nanoseconds = int(self._header.nanoseconds)
        self._recomputing = int(schedule(0).nanoseconds)
        self._calls, self._call_seconds = 0, deque[float](maxlen=_RECENT_CALLS)
        library.asd_tell_unread(*unread.from_any_thread())

    def __deepcopy__(self, memo: Any) -> KernelTable:
        """Itself: a copy of a network is checked by the same table."""
        return self

    def new_site(self, name: str, kind: str = GRADIENT) -> Site:
        """See `Table`."""
        site = self._sites.new(name, kind)
        self._library.asd_take_back((ctypes.c_int64 * 1)(site.slot), 1)
        self._slots[site.slot] = (0.0, 0.0, 0, 0, 0, 0, 0.0, 0, 0, *[math.inf] * 3, *[0.0] * 3, 0, 0)
        self._twins.pop(site.slot, None)
        if self.capture.kept and self.capture.slot == site.slot:
            self._library.asd_release_capture()
        if self.wrong.slot == site.slot:
            self._library.asd_release_wrong_call()
        self._header.used = max(self._header.used, site.slot + 1)
        return site

    def new_gate(self) -> Gate:
        """See `Table`."""
        gate = self.gates.new()
        self._gates[gate.number] = 0
        self._gate_of[self._gate_of == gate.number] = 0
        self._slots["judged"][self._slots["judged"] == gate.number + 1] = 0
        return gate

    def give_guard(self, guard: Any, gate: Gate) -> None:
        """See `Table`."""
        self._gate_of[guard.guard_number % self._gate_of.size] = gate.number

    def sites(self) -> list[Site]:
        """See `Table`."""
        return self._sites.ordered()

    def read(self, sites: Sequence[Site], gate: Gate | None = None) -> list[Reading]:
        """See `Table`."""
        slots = list(map(_SLOT, sites))
        self._library.asd_take_back((ctypes.c_int64 * len(slots))(*slots), len(slots))
        self._library.asd_have_read(0 if gate is None else gate.number)
        rows = self._slots[slots].tolist()
        for field in ("max_abs", "l2", "mean_abs", "non_finite", "calls", "twins"):
            self._slots[field][slots] = 0
        if self.capture.kept and self.capture.slot in slots:
            self._library.asd_release_capture()
        if self.wrong.slot >= 0 and self.wrong.slot in slots:
            self._library.asd_release_wrong_call()
        readings = []
        for site, row in zip(sites, rows, strict=True):
            if row[3]:
                readings.append(Reading._make((site.name, *row[:8], site.kind)))
                if row[3] > 1 and site.kind == OUTPUT:
                    readings += self._compared_with_twins(site, readings[-1], row[8])
        return readings

    def _compared_with_twins(self, site: Site, reading: Reading, twins: int) -> Iterator[Reading]:
        known = self._twins.setdefault(site.slot, Twins())
        found = known.take(reading, twins, hashed=self.is_due(site))
        self._slots["pairs"][site.slot] = known.pairs
        if found is not None:
            yield found

    def keep(self, size: int, gate: Gate | None = None) -> None:
        """See `Table`."""
        self._header.capture_bytes = self.gates.keep(size, gate)

    def captures(self, sites: Sequence[Site]) -> list[Capture]:
        """See `Table`."""
        slots, kept, found = list(map(_SLOT, sites)), self.capture, []
        try:
            if kept.kept and kept.slot in slots:
                site, data = sites[slots.index(kept.slot)], ctypes.string_at(kept.data, kept.bytes)
                shape = tuple(kept.shape[: kept.dimensions])
                found.append(Capture(site.name, kept.call, shape, kept.dtype.decode(), kept.offset, data))
            if self.wrong.count and self.wrong.slot in slots:
                found.append(self._wrong_call(sites[slots.index(self.wrong.slot)]))
        except MemoryError:  # evidence is no reason to end a training
            return []
        else:
            return found
        finally:
            if kept.kept and kept.slot in slots:
                self._library.asd_release_capture()
            if self.wrong.slot in slots:
                self._library.asd_release_wrong_call()

    def _wrong_call(self, site: Site) -> Capture:
        tensors = tuple(
            KeptTensor(
                tuple(kept.shape[: kept.dimensions]), kept.dtype.decode(), ctypes.string_at(kept.data, kept.bytes)
            )
            for kept in self.wrong.tensors[: self.wrong.count]
        )
        call = OperatorCall(site.kind, site.name.rpartition(".checksum")[2].lstrip("_"), tensors)
        return Capture(site.name, self.wrong.call, *call.result[:2], 0, call.result.data, call)

    def set_limits(
        self,
        limits: Iterable[tuple[Site, Limits]],
        scale: float,
        least: Sequence[tuple[Site, Limits]] = (),
        gate: Gate | None = None,
    ) -> None:
        """See `Table`."""
        lost = self._sites.made - len(self._sites.living)
        if lost != self._lost:  # nobody judges a slot whose site is gone
            self._lost = lost
            self._slots["judged"][self._sites.dead(self._header.used)] = 0
        if gate is not None:
            judged = self._slots["judged"][: self._header.used]
            judged[judged == gate.number + 1] = 0
        slots = self._write(("limit_max", "limit_l2", "limit_mean"), limits, largest_raw, scale)
        smallest = "least_max", "least_l2", "least_mean"
        for column in smallest:
            self._slots[column][slots] = 0.0
        if least:
            self._write(smallest, least, smallest_raw, scale)
        self._slots["judged"][slots] = 1 if gate is None else gate.number + 1

    def _write(
        self, columns: Sequence[str], limits: Iterable[tuple[Site, Limits]], raw: Callable[[float, float], float],
        scale: float,
    ) -> list[int]:  # fmt: skip
        slots, rows = [], []
        for site, limit in limits:
            slots.append(site.slot)
            row = list(map(limit.__getitem__, FEATURES))
            if scale != 1.0 and (by := divisor(site.kind, scale)) != 1.0:
                row = [raw(each, by) for each in row]
            rows.append(row)
        given = np.array(rows).reshape(-1, len(FEATURES))
        for i, column in enumerate(columns):
            self._slots[column][slots] = given[:, i]
        return slots

    def schedule_checksums(
        self,
        every: int,
        turn: int,
        everything: bool,  # noqa: FBT001
        tolerance: int,
        gate: Gate | None = None,
    ) -> None:
        """See `Table`."""
        plan = schedule(self.gates.number(gate))
        plan.every, plan.turn, plan.all, plan.tolerance = every, turn, everything, tolerance

    def is_due(self, site: Site) -> bool:
        """See `Table`."""
        return bool(self._library.asd_checksum_is_due(site.slot))

    def arm(self, armed: bool, gate: Gate | None = None) -> None:  # noqa: FBT001 - an on-off switch
        """See `Table`."""
        self._gates["armed"][0 if gate is None else gate.number] = armed

    def refused(self, gate: Gate | None = None) -> int:
        """See `Table`."""
        return int(self._header.refused if gate is None else self._of(gate)["refused"])

    def unread(self, gate: Gate | None = None) -> Unread:
        """See `Table`."""
        return Unread(int(self._of(gate)["unread"]), bool(self._of(gate)["overrun"]))

    def updates(self, gate: Gate) -> int:
        """See `Table`."""
        return int(self._of(gate)["unread"])

    def announce(self, gate: Gate | None = None) -> None:
        """See `Table`."""
        self._of(gate)["message"][0] = ANNOUNCEMENT

    def announced(self, gate: Gate | None = None) -> int:
        """See `Table`."""
        return int(self._of(gate)["announced"])

    def tell(self, message: np.ndarray, gate: Gate) -> None:
        """See `Table`."""
        self._of(gate)["message"][1:] = message[1:]

    def heard(self, gate: Gate) -> np.ndarray | None:
        """See `Table`."""
        own = self._of(gate)
        if own["sums"][1] == 0:
            return None
        sums: np.ndarray = own["sums"].copy()
        self.drop_message(gate)
        return sums

    def drop_message(self, gate: Gate) -> None:
        """See `Table`."""
        self._of(gate)["message"][1:] = self._of(gate)["sums"][:] = 0

    def _of(self, gate: Gate | None) -> Any:
        return self._gates[0 if gate is None else gate.number]

    def begin_replay(self) -> None:
        """See `Table`."""
        self._library.asd_keep_slots()
        self._kept_before_replay = int(self._header.capture_bytes)
        self.replaying = True
        self._header.replaying, self._header.capture_bytes = 1, 0
        self._hashes[:] = 0

    def end_replay(self) -> None:
        """See `Table`."""
        self._library.asd_restore_slots()
        self.replaying = False
        self._header.replaying, self._header.capture_bytes = 0, self._kept_before_replay
        self._unsupported = int(self._header.unsupported)  # told of the step itself already

    def hashes(self, sites: Sequence[Site]) -> list[int]:
        """See `Table`."""
        slots = [site.slot for site in sites]
        found: list[int] = self._hashes[slots].tolist()
        self._hashes[slots] = 0
        return found

    def seconds(self) -> float:
        """See `Table`."""
        before, self._nanoseconds = self._nanoseconds, int(self._header.nanoseconds)
        return (self._nanoseconds - before) / 1e9

    def seconds_recomputing(self) -> float:
        """See `Table`."""
        before, self._recomputing = self._recomputing, int(schedule(0).nanoseconds)
        calls, self._calls = self._calls, 0
        # Not their sum: in the longest PyNative waits for what the training computes anyway.
        usual = median(self._call_seconds) if calls else 0.0
        return (self._recomputing - before) / 1e9 + calls * usual

    def note_call(self, seconds: float) -> None:
        """Says how long Python was busy with a check of a result that it called for in PyNative."""
        self._calls += 1
        self._call_seconds.append(seconds)

    def counted(self, gate: Gate) -> GateCounts:
        """See `Table`."""
        header, before = self._header, (gate.refused, self._unsupported, self._nanoseconds)
        gate.refused = int(self._gates[gate.number]["refused"])
        self._unsupported, self._nanoseconds = int(header.unsupported), int(header.nanoseconds)
        return GateCounts(
            gate.refused - before[0], self._unsupported - before[1], (self._nanoseconds - before[2]) / 1e9
        )
