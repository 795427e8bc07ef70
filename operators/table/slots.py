"""The table of slots: one per checkpoint, written by the device during a step, read by the host after it.

There are two tables with one face. `KernelTable` is the memory of the C++ library: reading it costs no copy.
`OperatorTable` is a handful of Parameters that MindSpore operators write; it serves every other device, and the CPU
without the library. A slot keeps the worst call of a step, so micro-batches and shared layers need no special care.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import mindspore as ms
import numpy as np

from asd.errors import ConfigError
from asd.operators.kernel import library as kernel
from asd.operators.table.gate import Gate, GateCounts
from asd.operators.table.gates import Gates
from asd.operators.table.kernel_table import KernelTable
from asd.operators.table.operator_table import OperatorTable
from asd.operators.table.site import Limits, Site
from asd.operators.table.unread import Unread
from asd.rules.readings.reading import GRADIENT, Capture, Reading

__all__ = ["Table", "by_backend", "table", "use_backend"]

Made = TypeVar("Made")


class Table(Protocol):
    """What `StepMonitor` and the guard need of a table.

    Attributes:
        backend: `kernel` or `operators`.
        replaying: Whether a step is being made again, for good or not; who makes it again for good says so here.
        capture: What was kept of a gradient last; `kept` is 0 where nothing was, and `captures` has none.
        wrong: The same of a call whose result was wrong; `slot` is -1 where there was none.
        gates: Of the monitors that live; where a method takes none, the default one is meant.
    """

    backend: str
    replaying: bool
    capture: kernel.CaptureStruct
    wrong: kernel.WrongCallStruct
    gates: Gates

    def new_site(self, name: str, kind: str = GRADIENT) -> Site:
        """A fresh slot under `name`."""

    def new_gate(self) -> Gate:
        """A fresh gate."""

    def give_guard(self, guard: Any, gate: Gate) -> None:
        """Says whose `guard`, the gate cell of an optimizer, is."""

    def sites(self) -> list[Site]:
        """All living sites, in the order of their slots."""

    def read(self, sites: Sequence[Site], gate: Gate | None = None) -> list[Reading]:
        """The readings of those of `sites` that were checked since the last call; empties their slots.

        What a refused update left is among them: the gate has set it aside, so that later steps are judged without it.
        """

    def keep(self, size: int, gate: Gate | None = None) -> None:
        """Of the first gradient of a step that breaks its limit at most `size` bytes are kept; 0 for nothing.

        The first call of an operator whose result is wrong is kept too, if it has no more.
        """

    def captures(self, sites: Sequence[Site]) -> list[Capture]:
        """What was kept of gradients and calls of `sites` since the last time; asked before `read`, which drops it."""

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

    def schedule_checksums(
        self,
        every: int,
        turn: int,
        everything: bool,  # noqa: FBT001
        tolerance: int,
        gate: Gate | None = None,
    ) -> None:
        """Which products are checked in the next step; see `Schedule` of `asd.operators.kernel.library`."""

    def is_due(self, site: Site) -> bool:
        """Whether the product of `site` is checked in this step."""

    def arm(self, armed: bool, gate: Gate | None = None) -> None:  # noqa: FBT001 - an on-off switch
        """Whether the gate may refuse an update."""

    def refused(self, gate: Gate | None = None) -> int:
        """Updates refused so far, by all gates if none is given."""

    def unread(self, gate: Gate | None = None) -> Unread:
        """What happened since the last `read`."""

    def updates(self, gate: Gate) -> int:
        """Updates that `gate` has judged since its host read last; waits for the graph that makes them."""

    def announce(self, gate: Gate | None = None) -> None:
        """Tells all ranks, with their next update, that this one has written a checkpoint."""

    def announced(self, gate: Gate | None = None) -> int:
        """A number that grows when any rank has announced a checkpoint."""

    def tell(self, message: np.ndarray, gate: Gate) -> None:
        """Tells all ranks something with their next update, see `asd.operators.table.message`; if `gate.carries`."""

    def heard(self, gate: Gate) -> np.ndarray | None:
        """The sum of what the ranks told with their last update, once; None where nothing was told."""

    def drop_message(self, gate: Gate) -> None:
        """Tells nothing any more, and forgets what was heard."""

    def begin_replay(self) -> None:
        """From now on every update is refused and not counted, and nothing is kept."""

    def end_replay(self) -> None:
        """Back to what was before `begin_replay`."""

    def hashes(self, sites: Sequence[Site]) -> list[int]:
        """Of every bit of the gradients that `sites` saw in a replay since the last call; 64-bit numbers.

        Empty where gradients can't be hashed.
        """

    def counted(self, gate: Gate) -> GateCounts:
        """What the device counted since the last call; `gate` keeps how many of its updates were refused by now."""

    def seconds(self) -> float:
        """What the checks took since `counted` or this was called last; 0 where that can't be measured."""

    def seconds_recomputing(self) -> float:
        """What checks of results took since the last call; 0 where that can't be measured."""


_table: KernelTable | OperatorTable | None = None


def table() -> KernelTable | OperatorTable:
    """The table of this process, chosen at the first call: the kernel's on a CPU if it was built, else operators."""
    global _table
    if _table is None:
        on_cpu = ms.get_context("device_target") == "CPU"
        _table = KernelTable(kernel.library) if on_cpu and kernel.library is not None else OperatorTable()
    return _table


def by_backend(kernel: Callable[[KernelTable], Made], operators: Callable[[OperatorTable], Made]) -> Made:
    """What one of two functions makes of this process's table: the one for its back end."""
    chosen = table()
    return operators(chosen) if isinstance(chosen, OperatorTable) else kernel(chosen)


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
