"""One recorded step: names, parents, what is selected, and calls in PyNative."""

import linecache
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from mindspore import Parameter, context

from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.selection import Selection
from asd.operators.debugger.hooks.gradients import GradientWatch
from asd.operators.debugger.record.overflow_recording import OverflowRecording
from asd.operators.debugger.record.recording import DumpRecording
from asd.operators.debugger.record.values import leaves
from asd.operators.private.backward import shows_its_graph
from asd.operators.private.boundary import is_own_work

_LOG = logging.getLogger("asd")
_OURS = "asd.operators.debugger"
StepRecording = DumpRecording | OverflowRecording


class Label(NamedTuple):
    """The name of a call but for its number."""

    text: str  # `Cell.layers.0.Dense` or `Mint.add`
    module: bool  # whether it is a module: those end `.forward.0`, APIs `.0.forward`

    def name(self, direction: str, number: int) -> str:
        """Returns the full name of a call."""
        return f"{self.text}.{direction}.{number}" if self.module else f"{self.text}.{number}.{direction}"


class Session:
    """Takes part in every hooked call while a step is recorded.

    Args:
        config: Selects what is recorded.
        recording: Where it goes.
    """

    def __init__(self, config: DebuggerConfig, recording: StepRecording) -> None:
        self.config = config
        self.recording = recording
        self.selection = Selection(config)
        # called after each call when it is recorded; what it raises reaches the network's caller
        self.after_call: Callable[[], None] = lambda: None
        self.busy = False  # whether a hooked API runs or a tensor is read: calls inside are not the network's
        self.entries = 0  # how many were recorded
        self._thread = threading.get_ident()
        self._calls: Counter[str] = Counter()
        self._running: list[tuple[str, str]] = []
        self._gradients = GradientWatch(self._quiet())
        self._open: list[str] = []  # entries with gradients of parameters, of which more may come
        self._parameter_hooks: list[Any] = []
        self._watched_parameters: Counter[int] = Counter()

    def here(self) -> bool:
        """Returns whether a hooked call belongs to the network, not to our own work or to another thread."""
        return not self.busy and threading.get_ident() == self._thread and not is_own_work()

    def call(
        self,
        label: Label,
        run: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        attributes: Callable[[], dict[str, Any] | None] = lambda: None,
        parameters: dict[str, Parameter] | None = None,
    ) -> Any:
        """Runs one hooked call and records it.

        Args:
            label: Its name.
            run: The call itself.
            args: Its arguments.
            kwargs: Its keyword arguments.
            attributes: Gives what an operator or a module was made with.
            parameters: Of a module, its own alone.

        Returns:
            What `run` returns.
        """
        if not self.config.takes(module=label.module):
            return run(*args, **kwargs)
        parents = [forward for forward, _ in self._running]
        number = self._calls[label.text]
        self._calls[label.text] += 1
        name, back = label.name("forward", number), label.name("backward", number)
        chosen = self.selection.enters(name, parents) and "forward" in self.config.data_mode
        # What a norm keeps of the batches changes within the call; the others may wait for the calls inside it.
        kept = {key: each for key, each in (parameters or {}).items() if not each.requires_grad}
        with self._quiet():
            while self._open and not parents:  # judged before what the next forward pass makes of them
                self.recording.close(self._open.pop(0))
            if chosen:
                frames = _frames()
                self.recording.open(name, parents[-1] if parents else None, frames, attributes())
                self._put(name, "input_args", args)
                self._put(name, "input_kwargs", kwargs)
                self._put_parameters(name, kept)
        self._running.append((name, back))
        before, self.busy = self.busy, not label.module
        try:
            output = run(*args, **kwargs)
        finally:
            self.busy = before
            self._running.pop()
        with self._quiet():
            if chosen:
                rest = {key: each for key, each in (parameters or {}).items() if key not in kept}
                self._put_parameters(name, rest, empty=parameters is not None and not kept)
                self._put(name, "output", output if isinstance(output, (tuple, list)) else (output,))
            stays = self.selection.leaves(name)
            if chosen:
                self._end(name, stays=stays)
            if "backward" in self.config.data_mode and shows_its_graph():
                self._watch(label, back, args, output, parameters)
                if not self._running:  # a session may last for a whole training, which must not keep its graphs
                    self._gradients.clear()
        self.after_call()
        return output

    def _outline(self, name: str) -> None:
        """Records both sides of a backward call as empty, so that each is there even if nothing comes."""
        for part in ("input", "output"):
            if part in self.config.data_mode:
                self.recording.put(name, part, [], [])

    def finish(self) -> None:
        """Ends the step."""
        for handle in self._parameter_hooks:
            handle.remove()
        self._parameter_hooks.clear()
        self._gradients.clear()
        self.recording.finish()

    @contextmanager
    def _quiet(self) -> Iterator[None]:
        before, self.busy = self.busy, True
        try:
            yield
        except Exception as error:  # of whatever kind: the training goes on
            if current_session() is self:  # hooks of the backward pass may fail many times
                set_session(None)
                _LOG.error("the record of this step ends here, the training continues: %r.", error)
        finally:
            self.busy = before

    def _put(self, name: str, part: str, value: Any) -> None:
        if _side(part) not in self.config.data_mode:
            return
        for path, leaf in leaves(value):
            self.recording.put(name, part, path, leaf)

    def _put_parameters(self, name: str, parameters: dict[str, Parameter], *, empty: bool = False) -> None:
        """Records some of a module's parameters; writes an empty list only if `empty` is set."""
        if parameters or empty:
            self._put(name, "parameters", parameters)

    def _end(self, name: str, *, stays: bool) -> None:
        """Ends an entry, of which all is known, also whether it is inside the scope."""
        if stays:
            self.entries += 1
            self.recording.close(name)
        else:
            self.recording.drop(name)

    def _watch(
        self, label: Label, back: str, args: tuple[Any, ...], output: Any, parameters: dict[str, Parameter] | None
    ) -> None:
        above = [backward for _, backward in self._running]
        ins, outs = list(leaves(args)), list(leaves(output if isinstance(output, (tuple, list)) else (output,)))

        # What the hooks hold must not lead back to the tensors: no collector sees a cycle through MindSpore's nodes.
        in_paths, out_paths = [path for path, _ in ins], [path for path, _ in outs]

        def begin() -> bool:
            if not self.selection.enters(back, above):
                return False
            self.recording.open(back, above[-1] if above else None, (), None)
            self._outline(back)
            return True

        def tell(part: str, place: int, gradient: np.ndarray, dtype: str) -> None:
            path = (out_paths if part == "input" else in_paths)[place]
            if _side(part) in self.config.data_mode:
                self.recording.put_array(back, part, path, gradient, dtype)

        def done() -> None:
            self._end(back, stays=self.selection.leaves(back))

        self._gradients.watch([leaf for _, leaf in ins], [leaf for _, leaf in outs], begin, tell, done)
        for parameter_name, parameter in (parameters or {}).items():
            self._watch_parameter(label.name("parameters_grad", 0), parameter_name, parameter, above)

    def _watch_parameter(self, entry: str, name: str, parameter: Parameter, above: list[str]) -> None:
        if not parameter.requires_grad or id(parameter) in self._watched_parameters:
            return
        self._watched_parameters[id(parameter)] += 1
        prefix = entry.rpartition(".")[0]

        @self._quiet()
        def hook(gradient: Any) -> None:
            number = self._watched_parameters[id(parameter)] - 1
            self._watched_parameters[id(parameter)] += 1
            if self.selection.takes_gradients(f"{prefix}.{number}", above) and "output" in self.config.data_mode:
                self.recording.put(f"{prefix}.{number}", name, [0], gradient)
                self._open.append(f"{prefix}.{number}")

        self._parameter_hooks.append(parameter.register_hook(hook))


_current: list[Session | None] = [None]


def set_session(session: Session | None) -> None:
    """Begins or ends recording."""
    _current[0] = session


def current_session() -> Session | None:
    """Returns the session that is recording, for any caller; None where nothing is recorded."""
    return _current[0]


def eager_session() -> Session | None:
    """Returns the session for a call that Python makes in PyNative, from the network itself; else None."""
    session = _current[0]
    if session is None or not session.here() or context.get_context("mode") != context.PYNATIVE_MODE:
        return None
    return session


def _side(part: str) -> str:
    """Returns the side of an entry, `input` or `output`, that a part of it belongs to."""
    return "output" if part in ("output", "parameters_grad") else "input"


def _frames() -> tuple[str, ...]:
    """Returns the call stack without our own frames, innermost first."""
    frames = []
    frame = sys._getframe(2)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith(_OURS):
            code = frame.f_code
            frames.append(_frame(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(frames)


_known_frames: dict[tuple[str, int], str] = {}


def _frame(file: str, line: int, function: str) -> str:
    key = (file, line)
    if key not in _known_frames:
        source = linecache.getline(file, line).strip()
        _known_frames[key] = f"File {file}, line {line}, in {function}, \n {source}"
    return _known_frames[key]
