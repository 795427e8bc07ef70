"""From the tensors that compiled graphs deliver to the entries of a dump."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np
from mindspore import nn

from asd.operators.debugger.graph.call_order import CallSite, graph_of_call
from asd.operators.debugger.graph.collecting import Collector
from asd.operators.debugger.graph.parameter_gradients import ParameterHook
from asd.operators.debugger.hooks.cells import Hook, hooks
from asd.operators.debugger.hooks.graph_taps import (
    FORWARD_IN,
    FORWARD_OUT,
    GRADIENT_IN,
    GRADIENT_OF_PARAMETER,
    GRADIENT_OUT,
    NOT_NESTED,
    SEVERAL,
    constants,
    live,
    place_of,
)
from asd.operators.debugger.hooks.session import Session
from asd.operators.debugger.record.delivery import deliver_to, dtype_name, to_array
from asd.operators.debugger.record.values import Path, leaves
from asd.operators.private.cells import own_parameters

__all__ = ["GraphCalls", "Room"]

Key = tuple[int, int, int, int]
Room = dict[tuple[int, str], np.ndarray]
_KINDS = {
    FORWARD_IN: ("forward", "input"),
    FORWARD_OUT: ("forward", "output"),
    GRADIENT_OUT: ("backward", "input"),
    GRADIENT_IN: ("backward", "output"),
    GRADIENT_OF_PARAMETER: ("backward", "output"),
}  # of labels: the direction and the side


class GraphCalls:
    """Numbers the calls of one step and hands their tensors to the session.

    A cell that is called several times in one step has as many forward calls as its tap delivered outputs; backward
    calls come in the opposite order, so each belongs to the latest forward call that had none yet.

    Args:
        session: Of the step.
        room: For copies of the parameters, which the steps of a debugger share: to make room costs more than to copy.
    """

    def __init__(self, session: Session, room: Room | None = None) -> None:
        self._session = session
        self._room: Room = {} if room is None else room
        self._lock = threading.Lock()
        self._seen: Counter[Key] = Counter()
        self._outputs: Counter[int] = Counter()
        self._numbers: dict[tuple[int, int], int] = {}
        self._begins: dict[tuple[str, int, int], int] = {}  # numbers from which one run of a graph counts a name
        self._free: Counter[str] = Counter()
        self._waiting: dict[Key, list[int]] = defaultdict(list)  # forward calls that had no backward call yet
        self._known: Counter[Key] = Counter()  # how many calls were ever waiting, or had it before their forward call
        self._opened: dict[str, tuple[Hook, int, str]] = {}
        self._gradients: dict[str, ParameterHook] = {}
        self._wanted: dict[str, bool] = {}
        self._parameters: dict[int, dict[str, Any]] | None = None  # a copy and its type, or what is told of it
        self._collector = self._new_collector()

    def listen(self) -> None:
        """From now on the tensors of compiled graphs come here."""
        if self._collector is None:
            deliver_to(self.receive)
        else:
            self._collector.begin()

    def _new_collector(self) -> Collector | None:
        """None where tensors must come one by one: they are kept, or few of them are wanted."""
        config, writer = self._session.config, self._session.recording.summaries()
        if writer is None or config.names or config.scope:
            return None
        kinds = [kind for kind, (direction, side) in _KINDS.items() if {direction, side} <= config.data_mode]
        return Collector(writer, kinds if writer.tells else [], self._empty, checks=config.md5)

    def remember_parameters(self, nets: Iterable[nn.Cell]) -> None:
        """Reads the parameters before the first graph of the step: when it has run they may be updated already."""
        config = self._session.config
        if self._parameters is None and config.modules and {"forward", "input"} <= config.data_mode:
            self._parameters = {}
            for net in nets:
                for _, cell in net.cells_and_names():
                    hook = getattr(cell, "asd_tap_hook", None)
                    if hook is not None:
                        self._parameters[hook.number] = {
                            name: self._kept((hook.number, name), to_array(parameter), dtype_name(parameter))
                            for name, parameter in own_parameters(cell).items()
                            if parameter is not None
                        }

    def _kept(self, key: tuple[int, str], array: np.ndarray, dtype: str) -> Any:
        if self._collector is not None:
            writer = self._collector.writer
            return writer.told(array, dtype) if writer.tells else None
        return self._copy(key, array), dtype

    def _copy(self, key: tuple[int, str], array: np.ndarray) -> np.ndarray:
        room = self._room.get(key)
        if room is None or room.shape != array.shape or room.dtype != array.dtype:
            room = self._room[key] = np.empty_like(array)
        np.copyto(room, array)
        return room

    def receive(self, label: Key, array: np.ndarray, dtype: str) -> None:
        """One tensor; the array is valid during the call only."""
        with self._lock:
            place = self._place(label)
            if place is not None:
                self._session.put_array(*place, array, dtype)

    def _empty(self) -> None:
        """As `receive`, for what was collected."""
        if self._collector is None:
            return
        with self._lock:
            for label, told in self._collector.take():
                place = self._place(label)
                if place is not None and told is not None:
                    self._collector.writer.value(*place, told)

    def _place(self, label: Key) -> tuple[str, str, Path] | None:
        """The entry that a tensor belongs to, the part of it, and the place in that; None if it is not wanted."""
        number, what, coded, inner = label
        place = place_of(coded)
        hook = hooks()[number]
        if isinstance(hook, ParameterHook):
            return self._place_of_parameter(hook, label) if self._session.config.modules else None
        if isinstance(hook, CallSite) and number not in live:
            return None  # its result turned out to be no tensor
        if not self._session.config.takes(module=hook.label.module):
            return None  # an earlier debugger of the process asked for it
        backward = what > FORWARD_OUT
        call = self._backward_call(label) if backward else self._forward_call(label)
        direction = "backward" if backward else "forward"
        part = {FORWARD_IN: "input_args", FORWARD_OUT: "output", GRADIENT_OUT: "input"}.get(what, "output")
        part = "input_kwargs" if isinstance(place, str) else part
        name = self._open(hook, direction, call)
        if not self._wanted[name]:
            return None
        self._opened.pop(name)
        self._opened[name] = hook, call, direction  # to the end: they are told in the order of completion
        return name, part, [place] if inner == NOT_NESTED else [place, inner]

    def _place_of_parameter(self, hook: ParameterHook, label: Key) -> tuple[str, str, Path] | None:
        name = hook.entry(self._seen[label])
        self._seen[label] += 1
        config, selection = self._session.config, self._session.selection
        if not {"backward", "output"} <= config.data_mode or not selection.is_named(name, list(hook.above())):
            return None
        self._gradients[name] = hook
        return name, hook.name, [0]

    def finish(self, *, forget: bool = False) -> None:
        """A graph has run: parents are known only now, since any number of calls may share one.

        Args:
            forget: Nothing of its calls is still to come, so a session of many steps need not know them any more.
        """
        session = self._session
        self._empty()
        with self._lock:
            opened, self._opened = self._opened, {}
            gradients, self._gradients = self._gradients, {}
        # Where a gradient needs no value the backward pass may overtake the forward one.
        for name, (hook, call, direction) in sorted(opened.items(), key=lambda item: item[1][2] != "forward"):
            if not hook.label.module:
                session.count_to(hook.label.counted, self._number(hook, call) + 1)
            if not self._stays(name, hook, call, direction):
                continue
            frames = hook.frames() if direction == "forward" else ()
            attributes = hook.attributes if direction == "forward" else None
            session.recording.open(name, self._parent(hook, call, direction), frames, attributes)
            if direction == "forward":
                self._put_parameters(name, hook)
                self._put_constants(name, hook)
            session.end(name, stays=True)
        for name, parameter in gradients.items():
            if not session.selection.takes_gradients(name, list(parameter.above())):
                session.recording.drop(name)
        if forget:
            self._wanted.clear()
            self._numbers.clear()

    def _stays(self, name: str, hook: Hook | CallSite, call: int, direction: str) -> bool:
        """Whether a call is recorded; of its place in the scope nothing is known until now, when the graph has run."""
        selection = self._session.selection
        above: list[str] = []
        parent, around = self._around(hook, call)
        while parent is not None:
            above.append(parent.name(direction, around))
            parent, around = self._around(parent, around)
        above.reverse()
        inside = selection.enters(name, above)
        inside = selection.leaves(name) and inside
        if self._wanted[name] and not inside:
            self._session.end(name, stays=False)
            self._wanted[name] = False
        return self._wanted[name]

    def _put_parameters(self, name: str, hook: Hook | CallSite) -> None:
        if not hook.label.module:
            return
        self._session.outline_part(name, "parameters", {})
        for each, value in (self._parameters or {}).get(hook.number, {}).items():
            if self._collector is None:
                self._session.put_array(name, "parameters", [each], *value)
            else:
                self._collector.writer.value(name, "parameters", [each], value)

    def _put_constants(self, name: str, hook: Hook | CallSite) -> None:
        """Arguments that no graph computes."""
        if "input" in self._session.config.data_mode:
            for (place, *inner), value in constants.get(hook.number, {}).items():
                if value is SEVERAL:
                    continue
                part, start = ("input_kwargs", [place]) if isinstance(place, str) else ("input_args", [place])
                for path, leaf in leaves(value, [*start, *inner]):
                    self._session.recording.put(name, part, path, leaf)

    def _forward_call(self, key: Key) -> int:
        # An argument that earlier calls did not have belongs to the call whose output is still to come.
        call = max(self._seen[key], self._calls(hooks()[key[0]]) if key[1] == FORWARD_IN else 0)
        self._seen[key] = call + 1
        if key[1] == FORWARD_OUT:
            self._outputs[key[0]] = max(self._outputs[key[0]], call + 1)
        return call

    def _backward_call(self, key: Key) -> int:
        calls, waiting = self._calls(hooks()[key[0]]), self._waiting[key]
        waiting.extend(range(self._known[key], calls))
        self._known[key] = max(self._known[key], calls)
        if waiting:
            return waiting.pop()
        self._known[key] += 1
        return self._known[key] - 1

    def _calls(self, hook: Hook | CallSite) -> int:
        return self._outputs[hook.number]

    def _open(self, hook: Hook, direction: str, call: int) -> str:
        name = hook.label.name(direction, self._number(hook, call))
        if name not in self._wanted:
            above = []
            around = hook.inside
            while around is not None:
                above.append(around.name(direction, call))
                around = around.inside
            above.reverse()
            wanted = direction in self._session.config.data_mode and self._session.selection.is_named(name, above)
            self._wanted[name] = wanted
            if wanted:
                self._session.outline(name, direction)
        self._opened.setdefault(name, (hook, call, direction))
        return name

    def _number(self, hook: Hook, call: int) -> int:
        """That of the call among those of its kind; PyNative may have made some before it, and goes on after it."""
        if (hook.number, call) not in self._numbers:
            number = hook.count(call) if hook.label.module else self._in_source(hook, call)
            self._numbers[hook.number, call] = number
        return self._numbers[hook.number, call]

    def _in_source(self, hook: Hook | CallSite, call: int) -> int:
        """As `_number`, of a function or operator: where its graph stands in the step, and it in that."""
        counted = hook.label.counted
        graph = graph_of_call(hook)
        cycle = graph.cycle(hook, call)
        key = (counted, id(graph), cycle.run)
        if key not in self._begins:
            self._begins[key] = max(self._session.counted(counted), self._free[counted])
        self._free[counted] = max(self._free[counted], self._begins[key] + cycle.calls)
        return self._begins[key] + cycle.place

    def _parent(self, hook: Hook, call: int, direction: str) -> str | None:
        parent, around = self._around(hook, call)
        return None if parent is None else parent.name(direction, around)

    def _around(self, hook: Hook | CallSite, call: int) -> tuple[Hook | None, int]:
        """The module in which a call runs, and the call of that."""
        if hook.inside is None:
            return None, 0
        mine, its = max(self._calls(hook), 1), max(self._calls(hook.inside), 1)
        return hook.inside, min(call * its // mine, its - 1)
