"""Reports updates that no monitor judges: within ten steps, in the log, in the status and by a metric."""

import gc
import weakref

from mindspore import Parameter, nn
from mindspore.experimental.optim import Optimizer as ExperimentalOptimizer

from asd.config import Config
from asd.judge.monitor import Monitor
from asd.operators.gate.gate import Gate
from asd.operators.gate.slots import table
from asd.operators.private.boundary import at_exit, shielded, wait_for_pynative
from asd.operators.private.mended import take_loaded
from asd.operators.ranks.origin import origin_of_process
from asd.operators.sensors.install import sites_of
from asd.operators.sensors.optimizer_state import FLOATS
from asd.operators.sensors.optimizers import members_of, updates_of
from asd.sinks import open_sinks

OPTIMIZERS = (nn.Optimizer, ExperimentalOptimizer)
_EVERY = 5  # calls between two looks: what changes from one to the next is trained, within ten steps
_NOTHING = (
    "nothing is judged: {name} makes updates, and no step ends where Python can see it:"
    " call StepMonitor.attach before the loop and StepMonitor.step after each step"
)
_NOT_ATTACHED = (
    "not everything is judged: updates of {name} are never refused, because a StepMonitor was attached without this"
    " optimizer: pass all of them, as in StepMonitor.attach(net, [first, second])"
)
_FUNCTIONAL = (
    "nothing is judged: gradients are computed and weights change, but no known optimizer changes them: have an"
    " optimizer of mindspore.nn make the update, and pass it to StepMonitor.attach before the loop"
)
_SAMPLE, _SMALL = 16, 2**16
"""Approximate number of Parameters that are compared, and the largest number of elements of one."""


class Unwatched:
    """Watcher of this process's optimizers; it reports once that no monitor judges one of them.

    Attributes:
        monitor: Writes the status with that report; None until there is one.
        takes_gradients: Whether a gradient function was made in this process.
        optimizers: Those that were made.
        calls: Calls that may have made an update, or gradients.
        updates: How many each optimizer had made at the first check without a monitor.
    """

    def __init__(self) -> None:
        self.monitor: Monitor | None = None
        self.takes_gradients = False
        self.optimizers: weakref.WeakSet[nn.Cell] = weakref.WeakSet()
        self.calls = self._looks = self._served = 0
        self.updates: weakref.WeakKeyDictionary[nn.Cell, int] = weakref.WeakKeyDictionary()
        self._before: list[tuple[Parameter, bytes]] = []

    def look(self) -> None:
        """Looks now and then, after a call that may have made an update."""
        self.calls += 1
        if self.calls % _EVERY == 0 and self.monitor is None and (unjudged := self._unjudged()) is not None:
            wait_for_pynative()
            self._look(unjudged)

    @shielded
    def _unjudged(self) -> list[nn.Cell] | None:
        """Returns the optimizers without a monitor; None if there is no need to look, for that waits for the device."""
        if self.calls == _EVERY:  # some may have been made before the import
            self.optimizers.update(each for each in gc.get_objects() if issubclass(type(each), OPTIMIZERS))
        if self._served != Gate.served:  # a training that was judged may have ended since
            self._served, self._before, self._looks = Gate.served, [], 0
            self.updates.clear()
        found, gates = [each for each in list(self.optimizers) if judged_by(each) is None], table().gates
        for each in set(self.updates).difference(found):
            del self.updates[each]
        asks = any(gate.listener is not None and not gate.updates for gate in list(gates.living.values()))
        return found if found or asks or not gates.others() else None

    @shielded
    def _look(self, unjudged: list[nn.Cell]) -> None:
        # A checkpoint may be loaded before the first look.
        found = [each for each in unjudged if (made := updates_of(each)) > self.updates.setdefault(each, made)]
        judged = table().gates.others()
        if found:
            self._say((_NOT_ATTACHED if judged else _NOTHING).format(name=type(found[0]).__name__))
        elif self.takes_gradients and not judged and self._weights_changed():
            self._say(_FUNCTIONAL)
        for gate in list(table().gates.living.values()):
            if gate.listener is not None and table().updates(gate) >= _EVERY:
                gate.listener()

    def _weights_changed(self) -> bool:
        """Returns whether a sampled weight changed; a new sample is taken after 1, 2, 4 ... checks."""
        if take_loaded(weight for weight, _ in self._before):
            self._before, self._looks = [], 0  # the user changed them
        changed = any(weight.asnumpy().tobytes() != before for weight, before in self._before)
        self._looks += 1
        if not self._looks & (self._looks - 1):
            weights = [each for each in gc.get_objects() if issubclass(type(each), Parameter) and _may_be_trained(each)]
            weights.sort(key=lambda each: each.size)
            small = [each for each in weights if each.size <= _SMALL] or weights[:1]
            sample = small[:: max(1, len(small) // _SAMPLE)]
            self._before = [(each, each.asnumpy().tobytes()) for each in sample]
        return changed

    def _say(self, reason: str) -> None:
        config = Config.of_process()
        origin = origin_of_process(config)
        self._before = []
        self.monitor = Monitor(config, origin, open_sinks(config, origin))
        self.monitor.protections.lacks("NPU_ASD_ENABLE", reason, told=True)
        self.monitor.tell_protections()
        self.monitor.status.unjudged = True
        at_exit(self.monitor.end_with_process)
        self.monitor.problem(reason)
        self.monitor.begin()


def _may_be_trained(weight: Parameter) -> bool:
    return weight.requires_grad and weight.dtype in FLOATS and not weight.has_init and not hasattr(weight, "to_local")


def judged_by(optimizer: nn.Cell, net: nn.Cell | None = None) -> Gate | None:
    """Returns the gate of a running training with `optimizer`, or of one with `net` and without an optimizer."""
    for gate in table().gates.others():
        attached = [each for whole in gate.optimizers for each in members_of(whole)]
        if any(not _parts(each).isdisjoint(_parts(optimizer)) for each in attached):
            return gate
    gates = (site.watched_by for site in sites_of(net)) if net is not None else ()
    return next((gate for gate in gates if gate is not None and not gate.optimizers), None)


def _parts(optimizer: nn.Cell) -> set[nn.Cell]:
    """Returns `optimizer` and those that it calls, as LARS does."""
    return {optimizer, *(each for _, each in optimizer.cells_and_names() if isinstance(each, OPTIMIZERS))}
