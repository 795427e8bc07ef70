"""The slots as Parameters that MindSpore operators write, for every device the C++ library does not serve."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from mindspore import Parameter, Tensor

from asd.operators.site import GATE, Limits, Site, Sites, largest_raw, smallest_raw
from asd.operators.unread import Unread, tell
from asd.reading import Capture, Reading, divisor
from asd.tiers import FEATURES

__all__ = ["OperatorTable"]


class OperatorTable:
    """The slots as Parameters. They belong to no Cell, so they appear in no checkpoint and in no list of weights.

    Attributes:
        max_abs, l2, mean_abs, non_finite, calls: float32 of shape (capacity,), written by the taps.
        aside: The same five of refused updates, until the host reads.
        limits: Three of the same shape, of the first three of these, already multiplied by the loss scale.
        least: Two of the same shape, lower limits of `l2` and `mean_abs`.
        zero_passes: float32 of the same shape, -1 where a tensor that is all zero is too small, else 0.
        judged: float32 of shape (capacity,), 1 where there is a limit; the gate leaves the others out.
        armed: float32 of shape (1,), one of `GATE`.
        refusals: float32 of shape (1,).
        announcing: float32 of shape (1,), 1 while this rank has something to announce.
        announcements: float32 of shape (1,), which grows when any rank did.
        held: float32 of shape (`GUARDS`,), 1 for each guard whose next update may belong to a step that was refused.
        guards: The gates of the guards that live.
        due: float32 of shape (capacity,), 1 where a product is checked in the next step.
    """

    backend = "operators"
    CAPACITY = 4096
    GUARDS = 64
    MOST_UNREAD = 20

    def __init__(self) -> None:
        self._sites = Sites(self.CAPACITY)
        self.max_abs, self.l2, self.mean_abs, self.non_finite, self.calls = self.values = tuple(
            self._parameter(name, 0.0, self.CAPACITY) for name in (*FEATURES, "non_finite", "calls")
        )
        self.aside = tuple(
            self._parameter(f"aside_{name}", 0.0, self.CAPACITY) for name in (*FEATURES, "non_finite", "calls")
        )
        self.held, self.guards = self._parameter("held", 0.0, self.GUARDS), weakref.WeakSet[Any]()
        self._refused_at_read, self._is_aside = 0, False
        self._updates, self._refusers, self._overrun = 0, set[int](), False  # as Python sees it, which is in PyNative
        self.limits = tuple(self._parameter(f"limit_{name}", math.inf, self.CAPACITY) for name in FEATURES)
        self.least = tuple(self._parameter(f"least_{name}", 0.0, self.CAPACITY) for name in FEATURES[1:])
        self.zero_passes = self._parameter("zero_passes", 0.0, self.CAPACITY)
        self._has_least = False
        self.judged = self._parameter("judged", 0.0, self.CAPACITY)
        self.armed, self.refusals, self.announcing, self.announcements = (
            self._parameter(name, 0.0, 1) for name in ("armed", "refusals", "announcing", "announcements")
        )
        self._announced_at: int | None = None
        self._limits = [np.full(self.CAPACITY, np.inf, np.float32) for _ in FEATURES]
        self.due, self._due = self._parameter("due", 0.0, self.CAPACITY), np.zeros(self.CAPACITY, bool)
        self._judged = np.zeros(self.CAPACITY, np.float32)
        self._gate = self._gate_before_replay = GATE["off"]
        self.repeating = False

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
        if (refused := self.refused()) != self._refused_at_read or self._is_aside:
            self._refused_at_read = refused
            columns = self._with_what_was_set_aside(columns, slots)
        self._updates, self._overrun = 0, False
        self._refusers.clear()
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

    def _with_what_was_set_aside(self, columns: list[np.ndarray], slots: Sequence[int]) -> list[np.ndarray]:
        _write(self.held, np.zeros(self.GUARDS, np.float32))
        worst = [column.copy() for column in columns]
        for i, (parameter, column) in enumerate(zip(self.aside, worst, strict=True)):
            aside = parameter.asnumpy().copy()
            column[slots] = np.maximum(column, aside)[slots] if i < len(FEATURES) else (column + aside)[slots]
            aside[slots] = 0
            _write(parameter, aside)
            self._is_aside = bool(aside.any())  # of the last, the calls
        return worst

    def keep(self, size: int) -> None:
        """Nothing: a tensor is kept by the kernel only."""

    def captures(self, sites: Sequence[Site]) -> list[Capture]:
        """Always none, see `keep`."""
        return []

    def set_limits(
        self, limits: Iterable[tuple[Site, Limits]], scale: float, least: Iterable[tuple[Site, Limits]] = ()
    ) -> None:
        """See `Table`."""
        self._judged[self._sites.dead(self.CAPACITY)] = 0
        for site, limit in limits:
            for feature, column in zip(FEATURES, self._limits, strict=True):
                column[site.slot] = largest_raw(limit[feature], divisor(site.kind, scale), np.float32)
            self._judged[site.slot] = 1
        for parameter, column in zip(self.limits, self._limits, strict=True):
            _write(parameter, column)
        _write(self.judged, self._judged)
        self._set_least(list(least), scale)

    def _set_least(self, least: Sequence[tuple[Site, Limits]], scale: float) -> None:
        if not (least or self._has_least):
            return
        self._has_least = bool(least)
        columns = [np.zeros(self.CAPACITY, np.float32) for _ in FEATURES]
        for site, limit in least:
            for feature, column in zip(FEATURES, columns, strict=True):
                column[site.slot] = smallest_raw(limit[feature], divisor(site.kind, scale), np.float32)
        columns[1] = np.where(columns[0] > 0, np.maximum(columns[1], np.finfo(np.float32).tiny), columns[1])
        _write(self.zero_passes, np.where(columns[0] > 0, -1, 0).astype(np.float32))
        for parameter, column in zip(self.least, columns[1:], strict=True):
            _write(parameter, column)

    def schedule_checksums(self, every: int, turn: int, everything: bool, tolerance: int) -> None:  # noqa: FBT001
        """See `Table`; the tolerance is that of `OperatorCheck` always."""
        turns = (np.arange(self.CAPACITY) + turn) % max(every, 1) == 0
        self._due = turns & (every > 0) | everything
        _write(self.due, self._due.astype(np.float32))

    def is_due(self, site: Site) -> bool:
        """See `Table`."""
        return bool(self._due[site.slot])

    def arm(self, armed: bool) -> None:  # noqa: FBT001 - an on-off switch
        """See `Table`."""
        self._set_gate(GATE["judge" if armed else "off"])

    def _set_gate(self, gate: int) -> None:
        self._gate = gate
        _write(self.armed, np.full(1, gate, np.float32))

    def refused(self) -> int:
        """See `Table`."""
        return int(self.refusals.asnumpy()[0])

    def unread(self) -> Unread:
        """See `Table`; of what a compiled graph did the host knows nothing but the refusals."""
        return Unread(self._updates, self._overrun)

    def saw_update(self, guard: int, *, refused: bool) -> None:
        """Is told of each update in PyNative, when the gate has judged it; `guard` is the number of the guard."""
        if self._gate == GATE["replay"]:
            return
        self._updates += 1
        overrun = guard in self._refusers and not self._overrun
        self._overrun |= overrun
        if refused:
            self._refusers.add(guard)
        if overrun or self._updates % self.MOST_UNREAD == 0:
            tell()

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
        """Whether a step is being made again."""
        return self.repeating or self._gate == GATE["replay"]

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

    def seconds(self) -> float:
        """Always 0: they are operators among the others of the step."""
        return 0.0

    def unsupported(self) -> int:
        """Always 0: MindSpore itself refuses a type it can't read."""
        return 0


def _write(parameter: Parameter, array: np.ndarray) -> None:
    # Not set_data: a compiled graph goes on writing to the old memory, and the host would read the new one for ever.
    parameter.copy_(Tensor(array))
