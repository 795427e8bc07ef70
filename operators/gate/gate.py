"""A monitor's share of the table, its sites, its guards, the state of its gate; and the gates of a table."""

import weakref
from collections.abc import Callable, Iterable
from typing import Any

from mindspore import Parameter

from asd.errors import UnsupportedError
from asd.operators.gate.site import Site


class Gate:
    """Share of the table that belongs to one monitor.

    Attributes:
        number: Number of the gate in the table; 0 for the default gate.
        sites: Sites of the monitor; the list stays the same object.
        guards: Guards of the optimizers that the monitor guards.
        optimizers: Optimizers that the monitor was attached to, guarded or not.
        active: Whether the training of the monitor runs.
        armed: Whether the gate refuses updates.
        listener: Called after some unjudged updates, also when the monitor no longer exists.
        refused: Updates that the gate had refused at the last count.
        updates: Most calls of one of its optimizers between the last two reads.
        second_level: Whether suspicious values are refused too, as the next step may be re-run.
        withholds: Whether the next update is refused whatever its values are.
        before_update: Reference to what is called before an update that Python makes; it returns what `mended` is.
        dropped: Whether values were dropped since the host read last, as of a step that the training skipped.
        mended: Whether the step is to be re-run, as it was computed with memory that has been put back since.
        fault: In what the device disagreed with itself since a monitor looked, see `Table.read`; mostly empty.
        label: Empty for the first living monitor, else a unique name; None before `attach`.
    """

    served = 0  # times that a training with a monitor began

    def __init__(self, number: int) -> None:
        self.number = number
        self.sites: list[Site] = []
        self.guards: weakref.WeakSet[Any] = weakref.WeakSet()
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.active = self.armed = self.second_level = self.withholds = self.mended = self.dropped = False
        self.refused, self.updates, self.fault = 0, 0, ""
        self.label: str | None = None
        self.listener: Callable[[], None] | None = None
        self.before_update: weakref.WeakMethod[Callable[[], bool | None]] | None = None
        self._monitor: weakref.ref[object] | None = None

    def serve(self, monitor: object) -> None:
        """Binds the gate to `monitor` and marks its training as running."""
        self._monitor, self.active = weakref.ref(monitor), True
        Gate.served += 1

    @property
    def is_free(self) -> bool:
        """Returns whether its training has ended or its monitor no longer exists."""
        return not self.active or self._monitor is None or self._monitor() is None

    def trains(self, parameters: Iterable[Parameter]) -> bool:
        """Returns whether one of its optimizers updates one of `parameters`."""
        own = {id(weight) for optimizer in self.optimizers for weight in getattr(optimizer, "parameters", ())}
        return any(id(parameter) in own for parameter in parameters)

    def leave_overflows(self, leaves: bool) -> None:  # noqa: FBT001 - an on-off switch
        """Sets whether values before the optimizers that are not finite are left to a dynamic loss scaler."""
        at_optimizers = {id(site) for guard in self.guards for site in guard.sites}
        for site in self.sites:
            site.leave_overflows(leaves and id(site) not in at_optimizers)

    def take(self, site: Site) -> None:
        """Takes over `site` from its previous owner."""
        owner = site.owner() if site.owner is not None else None
        if owner is not None and owner is not self and site in owner.sites:
            owner.sites.remove(site)
        site.owner = weakref.ref(self)
        if site not in self.sites:
            self.sites.append(site)


class Gates:
    """Gates of one table, at most `capacity`, by number; the sites that no monitor owns belong to `default`."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.default = Gate(0)
        self.living: weakref.WeakValueDictionary[int, Gate] = weakref.WeakValueDictionary({0: self.default})

    def new(self) -> Gate:
        """Returns a new gate; raises UnsupportedError if all numbers are in use."""
        number = next((i for i in range(self._capacity) if i not in self.living), None)
        if number is None:
            raise UnsupportedError(f"one more training can't be watched: all {self._capacity} gates are in use.")
        return self.living.setdefault(number, Gate(number))

    def others(self, gate: Gate | None = None) -> list[Gate]:
        """Returns the gates, except `gate`, of monitors whose training runs, by number."""
        return [other for _, other in sorted(self.living.items()) if other is not gate and not other.is_free]
