"""What one monitor has of the table: its sites, its guards, and what the gate does for it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from mindspore import Parameter

from asd.operators.table.site import Site


class Gate:
    """What one monitor has of the table.

    Attributes:
        number: Which one it is in the table; 0 for the default.
        sites: Its sites; the list stays the same object.
        guards: Of the optimizers it guards, what asks it.
        optimizers: Those that its monitor was attached to, guarded or not.
        active: Whether its training runs.
        armed: Whether it refuses.
        listener: Called after some updates that nobody judged, also when nobody holds the monitor any more.
        refused: Updates that it had refused when they were counted last.
        updated: Whether an optimizer was called between the last two reads.
        withholds: Whether the next update is refused whatever its values are.
        label: Empty for the first of the monitors that live, else a name that no other has; None before `attach`.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.sites: list[Site] = []
        self.guards: weakref.WeakSet[Any] = weakref.WeakSet()
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.active = self.armed = self.updated = self.withholds = False
        self.refused = 0
        self.label: str | None = None
        self.listener: Callable[[], None] | None = None
        self._monitor: weakref.ref[object] | None = None

    def serve(self, monitor: object) -> None:
        """Says whose it is, and that a training begins."""
        self._monitor, self.active = weakref.ref(monitor), True

    @property
    def is_free(self) -> bool:
        """Whether its training has ended, or nobody is left who judges it."""
        return not self.active or self._monitor is None or self._monitor() is None

    def trains(self, parameters: Iterable[Parameter]) -> bool:
        """Whether one of its optimizers updates one of `parameters`."""
        own = {id(weight) for optimizer in self.optimizers for weight in getattr(optimizer, "parameters", ())}
        return any(id(parameter) in own for parameter in parameters)

    def take(self, site: Site) -> None:
        """Takes over `site` from whoever had it."""
        owner = site.owner() if site.owner is not None else None
        if owner is not None and owner is not self and site in owner.sites:
            owner.sites.remove(site)
        site.owner, site.watched = weakref.ref(self), True
        if site not in self.sites:
            self.sites.append(site)
