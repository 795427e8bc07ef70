"""A step that can be re-run from its initial state: its changes are declared, and restored."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any, NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.experimental import optim as experimental
from mindspore.parallel.auto_parallel import AutoParallel

from asd.diagnosis.spread import StepResult
from asd.errors import UnsupportedError
from asd.operators.gate.gate import Gate
from asd.operators.gate.guard import is_guarded
from asd.operators.gate.table import Table
from asd.operators.private.class_swap import stock_class
from asd.operators.private.compiler import compiled_functions
from asd.operators.private.layout import operators_are_divided
from asd.operators.ranks.exchange import pack, unpack
from asd.operators.ranks.weights import hashes_of
from asd.operators.rerun import random_state
from asd.operators.rerun.step_tensors import form_of, numbers_of_first, tensor_like, tensors_in, to_host, with_tensors
from asd.operators.rerun.sunk import compile_for
from asd.operators.sensors.base import ASDBase
from asd.operators.sensors.install import cell_name

_MOST_KEPT = 1 << 20
_SETTLED = 2  # number of the run from which on all runs do the same: the first one creates state for later ones
_MOVING = ("moving_mean", "moving_variance")  # of BatchNorm, which does not read them while it trains
_UNDECLARED = "the changes of a step are not declared: pass the step to StepMonitor.watch_step"
_KNOWN = ("mindspore", "mindformers")
_OPTIMIZERS = (nn.Optimizer, experimental.Optimizer)


class Step(NamedTuple):
    """Step that can be re-run.

    Attributes:
        run: Runs it.
        args: Positional arguments of `run`.
        kwargs: Keyword arguments of `run`.
        save: Returns the state that it changes besides Parameters and random state; None where there is none.
        restore: Restores the result of `save`.
        audited: Whether it may run twice in a healthy training too, as all that it changes is declared.
        fetch: Runs it by a graph that fetches its batch, and returns the outputs and the batch; None where Python
            passes the batch. Method of the cell that is compiled to that graph.
    """

    run: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    save: Callable[[], Any] | None = None
    restore: Callable[[Any], object] | None = None
    audited: bool = False
    fetch: MethodType | None = None

    def saved(self) -> Any:
        """Returns the result of `save`; None without one."""
        return self.save() if self.save is not None else None

    def put_back(self, state: Any) -> None:
        """Calls `restore`."""
        if self.restore is not None:
            self.restore(state)


def is_known(cell: nn.Cell) -> bool:
    """Returns whether `cell` is a training cell of MindSpore or mindformers, which changes its own Parameters alone."""
    trains = cell.network if isinstance(cell, AutoParallel) else cell
    return isinstance(trains, nn.TrainOneStepCell) and stock_class(trains).__module__.partition(".")[0] in _KNOWN


class RepeatableStep:
    """The last step of one training.

    Args:
        net: The network or the training cell around it; must not be compiled yet.
        optimizer: A guarded optimizer.
        slots: The table.
        gate: The training's share of the table; the values at its checkpoints belong to the result of a step.
        also: More Parameters that a step may change, such as those of a loss scaler.

    Attributes:
        step: The last step, or None where it is not known.
        is_repeatable: Whether a step of the training can be re-run, None before the third; `obstacle` has further
            reasons.
        updates_outside: Whether the optimizer is called after the step, so not in its rerun.
        cost: Time and memory of the graph that re-runs a step with sunk data, in words; empty before it is compiled.
    """

    def __init__(self, net: nn.Cell, optimizer: nn.Cell, slots: Table, gate: Gate, also: Sequence[Parameter]) -> None:
        self.step: Step | None = None
        self._moving_before: list[np.ndarray] = []
        self.is_repeatable: bool | None = None
        self._is_current = False
        self._optimizer = optimizer
        self._updates_before = (0, 0)
        self._net, self._slots, self._gate = net, slots, gate
        random_state.watch_draws()
        self._also = also
        self._changing, self._changed = set[int](), ""  # ids of untrained Parameters that do; one that the step changed
        self._users_before: Any = None
        self._frozen, self._still = list[Parameter](), list[int]()
        self._find_parameters()
        self._before: tuple[list[np.ndarray], Sequence[Any]] | None = None
        self._at_sum: tuple[list[np.ndarray | None], Any] | None = None  # when gradients began to add up
        self._after: list[np.ndarray] = []  # what the last step left, where gradients add up
        self._adds_up = False
        self._left: list[int] = []  # hashes of what a refused step left
        self._runs, self._counted = 0, ""
        self._python: dict[str, Any] = {}
        self.updates_outside = False
        self.cost = ""

    def _find_parameters(self) -> None:
        """Finds the Parameters that a step may change, those of guarded optimizers and all others."""
        cells = self._reached()
        guarded = [self._optimizer, *(cell for cell in cells if is_guarded(cell))]
        updated = {id(each): each for optimizer in guarded for each in optimizer.get_parameters()}
        self._updated = list(updated.values())
        own = [parameter for cell in cells for parameter in cell.get_parameters(expand=False)]
        own += _held_by(ms.Generator, cells)
        self._counts = _held_by(ASDBase, cells)  # which no step reads: only a rerun for good has to put them back
        written = {id(each): each for each in (*own, *self._also) if id(each) not in updated}
        self._moving = [parameter for parameter in written.values() if parameter.name.endswith(_MOVING)]
        read = {key: parameter for key, parameter in written.items() if not parameter.name.endswith(_MOVING)}
        weights = {id(parameter) for parameter in _network_in(self._net).trainable_params()}
        known, self._frozen = {id(each) for each in self._frozen}, []
        if sum(parameter.nbytes for parameter in read.values()) > _MOST_KEPT:
            # Frozen ones, and weights that only assignments may change; not those of other stages or other trainings.
            others = [optimizer for gate in self._slots.gates.others(self._gate) for optimizer in gate.optimizers]
            elsewhere = {id(each) for optimizer in others for each in getattr(optimizer, "parameters", ())}
            elsewhere |= {key for key, each in read.items() if key in weights and each.has_init}
            stay = {key for key, each in read.items() if key in weights or not each.requires_grad}
            stay -= (self._changing - elsewhere) | {id(each) for each in _held_by(ms.Generator, cells)}
            self._frozen = [each for key, each in read.items() if key in stay - elsewhere]
            read = {key: each for key, each in read.items() if key not in stay}
        if {id(each) for each in self._frozen} != known:
            self._still = []
        self._read = list(read.values())
        self._written = [*self._read, *self._moving, *self._counts]
        # Peers have the same weights, but their optimizers may update different ones.
        self._sent = [place for place, parameter in enumerate(self._read) if id(parameter) not in weights]
        self._size = sum(parameter.nbytes for parameter in self._read)

    def remember(self, step: Step) -> None:
        """Keeps what `step`, which is made next, begins with, but for weights and optimizer, which will stay.

        What a program writes is then kept with it, for nothing comes in between.
        """
        self._slots.expire()
        # The object of a method identifies the step, as the method itself is a new one each time.
        known = getattr(self.step.run, "__self__", self.step.run) if self.step is not None else None
        is_new = known is not getattr(step.run, "__self__", step.run)
        self._runs += 1
        if self._runs > _SETTLED and self.is_repeatable is None:
            # The step is compiled by now: its graph is searched once, before a replay is in a hurry.
            self.is_repeatable = not self.obstacle_to_next()
        self.step, self._is_current = step, True
        if is_new:
            self._find_parameters()
            self._at_sum, self._after = None, []
        if self._frozen and not self._still and (self._runs > 1 or not operators_are_divided()):  # which slices them
            self._still = hashes_of(self._frozen)
        random_state.forget_draws()
        if self._size <= _MOST_KEPT:
            self._before = [to_host(parameter) for parameter in self._read], random_state.save()
            self._users_before = step.saved()
            self._at_sum = self._at_sum or ([*self._before[0]], self._users_before)
            self._leave_what_was_written(self._before[0])
            self._updates_before = self._updates()
            self._moving_before = [to_host(parameter) for parameter in self._moving]
        self._python = self._in_python() if self._runs == _SETTLED else {}

    def note_end(self, *, refused: bool) -> bool:
        """Notes what the step left, before a program can write it; returns whether a new obstacle was found."""
        self._after = self._now() if self._adds_up else []
        self._left = hashes_of(self._updated) if refused and self._is_current else []
        before, self._python = self._python, {}
        now = self._in_python() if before else {}
        changed = [name for name, value in before.items() if not _is_same(value, now.get(name))]
        self._counted = changed[0] if changed else self._counted
        return bool(changed)

    def _in_python(self) -> dict[str, Any]:
        """Returns the attributes of cells that Python runs, collections by their size; none for declared steps."""
        if ms.get_context("mode") == ms.GRAPH_MODE or self.step is None or self.step.audited or self.step.save:
            return {}
        return {
            f"{type(cell).__name__}.{name}": len(value) if isinstance(value, (list, dict, set, deque)) else value
            for cell in self._reached()
            if not type(cell).__module__.startswith("asd.")  # such as what measures gradients before their reducer
            for name, value in vars(cell).items()
            if not name.startswith(("_", "asd_"))
        }

    def _leave_what_was_written(self, now: Sequence[np.ndarray]) -> None:
        """Leaves sums out of the restore that the program has written since the last step."""
        if self._at_sum is not None:
            for place, left in enumerate(self._after):
                self._at_sum[0][place] = self._at_sum[0][place] if left.tobytes() == now[place].tobytes() else None

    def _now(self) -> list[np.ndarray]:
        is_kept = self._before is not None and self._size <= _MOST_KEPT
        return [to_host(parameter) for parameter in self._read] if is_kept else []

    def forget(self, *, updated: bool) -> None:
        """Forgets the step that is over; after an update gradients accumulate from zero."""
        self._is_current, self._left, self._changed = False, [], ""
        if updated:
            self._at_sum, self._after = None, []
        elif not self._adds_up:
            self._adds_up, self._after = True, self._now()

    def put_back_sums(self) -> str:
        """Puts back what the last steps changed, up to where gradients began to add up; returns why it can't if so."""
        if not self._is_current or self.step is None:
            return _UNDECLARED
        if self._at_sum is None:
            return self._too_much()
        if not self._read and self.step.restore is None:
            return "nothing that is declared holds it"
        self._leave_what_was_written(self._now())
        state, users = self._at_sum
        kept = [(each, value) for each, value in zip(self._read, state, strict=True) if value is not None]
        self._put([each for each, _ in kept], [value for _, value in kept])
        self.step.put_back(users)
        return ""

    def obstacle(self) -> str:
        """Returns why the last step must not be re-run, or an empty text."""
        return self.obstacle_to_such() or self._written_since() if self._is_current else _UNDECLARED

    def obstacle_later(self) -> str:
        """Returns why no later step will be re-run, or an empty text; call it after the first step."""
        reason, changed = self.obstacle(), self._changed
        if changed:  # it is kept from now on
            self._changed = ""
            reason, self._changed = self.obstacle(), changed
        return reason

    def obstacle_to_next(self) -> str:
        """Returns why the coming step must not be re-run, or an empty text; call it before `remember`."""
        reason, changed, self._changed = self.obstacle_to_such(), self._changed, ""
        return self.obstacle_to_such() if changed else reason  # it is kept from now on

    def _written_since(self) -> str:
        hashes = hashes_of(self._updated) if self._left else []
        written = [each.name for each, then, now in zip(self._updated, self._left, hashes, strict=False) if then != now]
        return f"the program has written {written[0]} since it was made" if written else ""

    def obstacle_to_such(self, *, compiles: bool = False) -> str:
        """Returns why steps like the last one must not be re-run, or an empty text; call it after the step.

        With `compiles` it is a graph that has not run yet, and is compiled first.
        """
        try:
            if compiles:
                assert self.step is not None and isinstance(self.step.run, nn.Cell)  # noqa: PT018 - it can be searched
                self.step.run.compile(*self.step.args, **self.step.kwargs)
            return self._find_obstacle()
        except Exception as error:  # all ranks go on together, whatever happens on one of them
            return repr(error)

    def can_be_searched(self, step: Step) -> bool:
        """Returns whether it is known before `step` runs if it must not be re-run."""
        is_graph = isinstance(step.run, nn.Cell) and ms.get_context("mode") == ms.GRAPH_MODE
        return self.step is not None or (is_graph and step.fetch is None)

    @property
    def waits(self) -> bool:
        """Returns whether it is not known before the first step what must not be re-run: what is frozen may change."""
        return bool(self._frozen) and self._runs == 1

    def obstacle_to_refused(self) -> str:
        """Returns why the last step, whose update was refused, must not be re-run, or an empty text."""
        if self._is_current and self._size <= _MOST_KEPT and (now := self._updates()) != self._updates_before:
            whose = "" if now[0] != self._updates_before[0] else " of another monitor's network"
            return f"it has already updated the weights{whose}"
        return self.obstacle()

    def _updates(self) -> tuple[int, int]:
        """Returns the updates that the gate has let pass, and those of other monitors' optimizers."""
        return self._slots.applied(self._gate), sum(map(self._slots.updates, self._slots.gates.others(self._gate)))

    def _find_obstacle(self) -> str:
        if self.step is None:
            return _UNDECLARED
        if self._before is None or self._size > _MOST_KEPT:
            return self._too_much()
        now = hashes_of(self._frozen) if self._still else []
        changed = [each for each, old, new in zip(self._frozen, self._still, now, strict=False) if old != new]
        if changed:
            self._changed = changed[0].name
            self._changing |= {id(each) for each in changed}
            self._find_parameters()
            self._at_sum, self._after = None, []
        if self._changed:
            return f"{self._changed} has changed, which no optimizer updates"
        if self._counted:
            return f"Python changes {self._counted} in a step: declare that by watch_step(step, save=..., restore=...)"
        if self.updates_outside:
            return "the optimizer is called after the step that is declared: declare both as one step"
        cells = self._reached()
        cells |= {} if self.step.fetch is None else {self.step.fetch.__self__: ""}  # whose graph may draw
        optimizers = [self._optimizer, *(cell for cell in cells if isinstance(cell, _OPTIMIZERS))]
        free = next((each for each in optimizers if not is_guarded(each)), None)
        if free is not None:
            return f"optimizer {type(free).__name__} is not guarded, so it would update its weights again"
        return random_state.uncontrolled(cells, compiled_functions())

    def _runs_python(self) -> bool:
        return ms.get_context("mode") == ms.PYNATIVE_MODE or not isinstance(self.step and self.step.run, nn.Cell)

    def _too_much(self) -> str:
        return f"a step may change {self._size / 2**20:.1f} MiB besides the optimizer's, too much to save each time"

    def _reached(self) -> dict[nn.Cell, str]:
        """Returns the cells of the network with their names, and those of the step itself where that is a cell."""
        roots = [self._net, *([self.step.run] if self.step is not None and isinstance(self.step.run, nn.Cell) else [])]
        return {cell: cell_name(path) for root in roots for path, cell in root.cells_and_names()}

    @contextmanager
    def without_a_trace(self) -> Iterator[None]:
        """Refuses every update inside, and restores the state after the step at the end."""
        step, slots = self.step, self._slots
        assert step is not None  # `obstacle` saw to it
        after = [to_host(parameter) for parameter in self._written], random_state.save()
        users = step.saved()
        slots.begin_replay()
        try:
            yield
        finally:
            slots.end_replay()
            slots.read(self._gate.sites, self._gate)
            self._put(self._written, after[0])
            random_state.restore(after[1], python=self._runs_python())
            step.put_back(users)

    def rerun_for_good(self) -> tuple[Any, str]:
        """Re-runs the step for good: the gate judges it, and its writes stay.

        Random streams are then where the first run left them: others may have drawn from them since.

        Returns:
            Its outputs, and the reason if it was not re-run.
        """
        streams, counts = random_state.save(), [to_host(parameter) for parameter in self._counts]
        self._slots.replaying = True
        try:
            for parameter, value in zip(self._moving, self._moving_before, strict=True):
                parameter.copy_(tensor_like(parameter, value))
            outputs = self._make(b"")
            numbers_of_first(outputs)  # a compiled graph runs on until an output is read
            hashes_of(self._updated[-1:])  # waits for the update
        except Exception as error:  # the other ranks must know of it
            return None, str(error) if isinstance(error, UnsupportedError) else repr(error)
        finally:
            self._slots.replaying = False
            self._put(self._counts, counts)
            random_state.restore(streams, python=self._runs_python())
        return outputs, ""

    def rerun_discarding(self, parcel: bytes = b"") -> tuple[StepResult, str]:
        """Re-runs the step from its initial state.

        Args:
            parcel: Result of `pack` on another rank, to run that rank's step; empty for the own one.

        Returns:
            The result, and the reason if there is none.
        """
        try:
            outputs = self._make(parcel)
            loss = numbers_of_first(outputs)  # a compiled graph runs on until an output is read
        except Exception as error:  # the other ranks must know of it
            is_plain = isinstance(error, UnsupportedError)
            return StepResult((), ()), str(error) if is_plain else f"the step cannot be re-run: {error!r}"
        return StepResult.of(loss, self._slots.read(self._gate.sites, self._gate)), ""

    def _make(self, parcel: bytes) -> Any:
        assert self.step is not None and self._before is not None  # noqa: PT018 - `obstacle` saw to it
        self._slots.expire()
        run, args, kwargs = self.step[:3]
        state, streams = self._before
        if parcel:
            arrays = iter(unpack(parcel))
            args, kwargs = with_tensors((args, dict(kwargs)), arrays)
            given = {place: next(arrays) for place in self._sent}
            state, streams = [given.get(place, value) for place, value in enumerate(state)], list(arrays)
        self._put(self._read, state)
        random_state.restore(streams, python=self._runs_python())
        self.step.put_back(self._users_before)
        gradients = [(each, each._grad) for each in self._updated]  # to which a `backward` adds
        try:
            if self.step.fetch is None:
                return run(*args, **kwargs)
            return run(*args) if args else self.run_fetched(self.step.fetch)
        except Exception:
            for each, gradient in gradients:
                each._grad = gradient
            raise

    def run_fetched(self, fetch: MethodType) -> Any:
        """Returns the outputs of the step whose graph fetches its batch, which is kept.

        A batch that was fetched already, as an audit ran the step before, is run by the graph of reruns.
        """
        step = self.step
        if step is None or step.fetch is not fetch:  # it was not remembered
            return fetch()[0]
        if step.args:
            return step.run(*step.args)
        outputs, batch = fetch()
        self.step = step._replace(args=batch)
        return outputs

    def compile_rerun(self) -> str:
        """Compiles the graph that re-runs a step with sunk data, for batches as the last; returns why not, if so."""
        step = self.step
        if step is None or step.fetch is None or self.cost or ms.get_context("mode") == ms.PYNATIVE_MODE:
            return ""
        try:
            self.cost = compile_for(step.run, step.args)
        except Exception as error:  # whatever it is: the training itself needs no such graph
            return f"the graph that re-runs a step with sunk data can't be compiled: {error!r}"
        return ""

    def fetch_batch(self) -> None:
        """Fetches the batch of a step that has not run yet, where its graph does that, by a run that leaves nothing."""
        if self.step is not None and self.step.fetch is not None:
            self.rerun_discarding()

    def pack(self) -> tuple[bytes, str]:
        """Returns the step and its initial state, for another rank that runs it, and what must be alike on both.

        Both are empty where the step cannot be sent, as where nothing that it gets is its batch.
        """
        try:
            assert self.step is not None and self._before is not None  # noqa: PT018 - as above
            given, (state, streams) = (self.step.args, dict(self.step.kwargs)), self._before
            form, found = form_of(given), [*tensors_in(given, (Tensor, np.ndarray))]
            batch = [to_host(each) if isinstance(each, Tensor) else each for each in found]
            arrays = [*batch, *(state[place] for place in self._sent), *random_state.as_arrays(tuple(streams))]
            return (pack(arrays), form) if batch else (b"", "")
        except Exception:  # the other ranks must know of it
            return b"", ""

    @staticmethod
    def _put(parameters: Sequence[Parameter], values: Sequence[np.ndarray]) -> None:
        for parameter, value in zip(parameters, values, strict=True):
            if to_host(parameter).tobytes() != value.tobytes():
                parameter.copy_(tensor_like(parameter, value))  # not set_data: compiled graphs keep the old memory


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, (bool, int, float, str)) and one == other)


def _held_by(kind: type, cells: Iterable[nn.Cell]) -> list[Parameter]:
    holders = [held for cell in cells for held in vars(cell).values() if isinstance(held, kind)]
    return [held for each in holders for held in vars(each).values() if isinstance(held, Parameter)]


def _network_in(cell: nn.Cell) -> nn.Cell:
    """Returns the network that a training cell trains."""
    while isinstance(cell, (AutoParallel, nn.TrainOneStepCell)):
        cell = cell.network
    return cell
