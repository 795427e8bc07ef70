"""Says that updates are made and nobody judges them: after ten, in the log and in the status."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from mindspore import Parameter, nn

from asd.config import Config
from asd.operators.gate.guard import is_guarded
from asd.operators.private.boundary import at_exit, shielded
from asd.operators.ranks.origin import origin_of_process
from asd.operators.table.slots import table
from asd.rules.step.monitor import Monitor
from asd.sinks import open_sinks

_UPDATES = 10
_COUNTERS = ("global_step", "state_step", "step_t")
_NOTHING = (
    "nothing is judged: {name} makes updates, and no step ends where Python can see it:"
    " call StepMonitor.attach before the loop and StepMonitor.step after each step"
)


class Unwatched:
    """The optimizers of this process, of which it says once that nobody judges one.

    Attributes:
        monitor: Writes the status that says so; None as long as nothing was said.
    """

    def __init__(self) -> None:
        self.monitor: Monitor | None = None
        self._optimizers: weakref.WeakSet[nn.Cell] = weakref.WeakSet()
        self._calls = 0

    def know(self, optimizer: nn.Cell) -> None:
        """Notes an optimizer that was made."""
        self._optimizers.add(optimizer)

    @shielded
    def look(self) -> None:
        """Looks now and then, after a call that may have made an update."""
        self._calls += 1
        if self.monitor is None and self._calls % _UPDATES == 0:
            found = (each for each in list(self._optimizers) if not _is_judged(each) and _updates(each) >= _UPDATES)
            if (optimizer := next(found, None)) is not None:
                self._say(type(optimizer).__name__)

    def _say(self, name: str) -> None:
        config = Config.of_process()
        origin = origin_of_process(config)
        self.monitor = Monitor(config, origin, open_sinks(config, origin))
        reason = _NOTHING.format(name=name)
        self.monitor.protections.lacks("NPU_ASD_ENABLE", reason, told=True)
        self.monitor.tell_protections()
        self.monitor.status.unjudged = True
        at_exit(self.monitor.end_with_process)
        self.monitor.problem(reason)
        self.monitor.begin()


def _is_judged(optimizer: nn.Cell) -> bool:
    own: Iterable[Parameter] = getattr(optimizer, "parameters", ())
    return is_guarded(optimizer) or any(gate.trains(own) for gate in table().gates.living.values())


def _updates(optimizer: Any) -> int:
    """How many it made; waits for the graph that makes them."""
    counter = next((getattr(optimizer, name) for name in _COUNTERS if hasattr(optimizer, name)), None)
    return int(counter.asnumpy().reshape(-1)[0]) if counter is not None else 0
