"""`PrecisionDebugger`: records what a network computes, step by step."""

import atexit
import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
from mindspore import context, nn
from mindspore.communication import GlobalComm, get_rank

from asd.dumps.formats.new_file import check_writable
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.writer import DumpWriter
from asd.errors import ConfigError, OverflowDetected, StateError
from asd.operators.debugger.dump_config import DumpConfig, NPURunConfig
from asd.operators.debugger.gradient_monitor import GradientMonitor
from asd.operators.debugger.hooks.apis import ApiHooks
from asd.operators.debugger.hooks.cells import hook_modules, hook_operators
from asd.operators.debugger.hooks.compiled_functions import CompiledFunctions
from asd.operators.debugger.hooks.session import Session, StepRecording, current_session, set_session
from asd.operators.debugger.record.environment import environment
from asd.operators.debugger.record.overflow_recording import OverflowCounter, OverflowRecording
from asd.operators.debugger.record.recording import DumpRecording
from asd.operators.debugger.record.values import optimizer_settings
from asd.operators.private.backward import shows_its_graph

_LOG = logging.getLogger("asd")
_NO_GRAPHS = (
    "nothing is recorded in graph mode: train in PyNative, or on a device dump the graph by the vendor's msprobe "
    '(level "L0"), whose dump.json `asd compare` reads.'
)


class PrecisionDebugger:
    """Dumps modules, APIs and operators of a training in PyNative, or finds the one that overflows.

    Everything is recorded, forward and backward, and not a bit changes of what the network computes. Compiled graphs
    are not recorded: graph mode, and functions under `ms.jit`.

    A failure to record or write ends the recording, never the training. An exception leaves the files of what was
    computed; a process that is killed in a step, as Ctrl-C does, leaves the tensors of that step alone.

    Args:
        config_path: A `config.json`, see `asd.dumps.record.debugger_config`; or a `DumpConfig`, `NPURunConfig` or
            `DebuggerConfig`.
        task: In place of what the file says, as the three that follow. Without a file the others have their defaults.
        dump_path: Folder that the dumps are written below.
        level: `L0`, `L1` or `mix`.
        step: Steps to record, from 0; empty: all.

    Raises:
        ConfigError: A setting is wrong, or `dump_path` can't be written.

    Example:
        >>> debugger = PrecisionDebugger(config_path="config.json")  # doctest: +SKIP
        >>> for batch in batches:  # doctest: +SKIP
        ...     debugger.start(net)
        ...     loss = train_step(batch)
        ...     debugger.stop()
        ...     debugger.step()
    """

    def __init__(
        self,
        config_path: str | Path | DumpConfig | NPURunConfig | DebuggerConfig | None = None,
        task: str | None = None,
        dump_path: str | Path | None = None,
        level: str | None = None,
        step: Sequence[int | str] | None = None,
    ) -> None:
        steps = list(step) if isinstance(step, (tuple, range, set)) else step
        given = {"task": task, "dump_path": dump_path and str(dump_path), "level": level, "step": steps}
        self._file = Path(config_path) if isinstance(config_path, (str, Path)) else None
        self._given = {key: value for key, value in given.items() if value is not None}
        self.config = _settings(config_path, self._given)
        check_writable(self.config.dump_path)
        if self.config.not_done:
            _LOG.warning("keys of the debugger's config have no effect: %s.", "; ".join(self.config.not_done))
        self._step = 0
        self._said: set[str] = set()
        self._nets: tuple[nn.Cell, ...] = ()
        self._apis: ApiHooks | None = None
        self._session: Session | None = None
        self._compiled: CompiledFunctions | None = None
        self._counter = OverflowCounter(self.config)
        self._monitor: GradientMonitor | None = None

    def start(self, model: nn.Cell | Sequence[nn.Cell] | None = None) -> None:
        """Begins to record, if the current step and this rank are wanted.

        Args:
            model: The network, or several, recorded as `Cell.model` with its modules. Without it only functions are.

        Raises:
            ConfigError: `model` is no network, or is missing where modules are asked for.
            StateError: Another debugger records.
            OverflowDetected: Enough calls overflowed, see `stop`.
        """
        self.stop()
        running = current_session()
        if running is not None:
            raise StateError(
                f"A different debugger is recording, with the task {running.config.task}, and only one can: call its "
                f"stop() before this start() with the task {self.config.task}."
            )
        self._read_again()
        if self.config.task == "grad_probe" or self.config.enabled is False:
            return
        nets = _networks(model)
        if self.config.modules and not nets:
            raise ConfigError("model", model, f"at level {self.config.level} pass the network to record")
        if context.get_context("mode") == context.GRAPH_MODE:
            self._say(_NO_GRAPHS)
            return
        self._hook(nets)
        if not (self.config.wants(self._step, "step") and self.config.wants(_rank(), "rank")):
            return
        self._begin(Session(self.config, self._recording()))

    def _read_again(self) -> None:
        """Reads a file with `dump_enable` again, as it may have been changed while the training runs."""
        if self._file is not None and self.config.enabled is not None:
            try:
                self.config = DebuggerConfig.read(self._file, **self._given)
            except ConfigError as error:
                self._say(f"the settings of the debugger stay as they were: {error}")

    def _begin(self, session: Session) -> None:
        self._session = session
        set_session(session)
        atexit.register(self._end)
        if self._apis is not None:
            self._apis.put()
        self._compiled = CompiledFunctions(self._apis, self._say_compiled, self._note_optimizer)
        self._compiled.begin()
        if not shows_its_graph() and "backward" in self.config.data_mode:
            self._say(
                f"MindSpore {ms.__version__} does not show its backward graph: only the forward pass is recorded."
            )

    def end_training_at_once(self) -> None:
        """Raises `OverflowDetected` from the call that overflows once too often, from now on until `stop`.

        That is a call within the step; after an overflow in the backward pass, the first of the next forward pass.
        """
        if self._session is not None:
            self._session.after_call = self._counter.end_training

    def stop(self) -> None:
        """Ends what `start` began.

        Raises:
            OverflowDetected: With the task `overflow_check`, when `overflow_nums` calls overflowed.
        """
        session, compiled = self._session, self._compiled
        if session is None or compiled is None:
            return
        self._session = self._compiled = None
        atexit.unregister(self._end)
        compiled.end()
        if self._apis is not None:
            self._apis.take_away()
        set_session(None)
        session.finish()
        if session.entries == 0:
            self._say(
                f"nothing was recorded in step {self._step}: the network has to run between start() and stop(), and "
                "scope and list must fit."
            )
        self._counter.end_training()

    def step(self) -> None:
        """Begins the next step."""
        self.stop()
        self._step += 1

    def monitor(self, optimizer: nn.Cell) -> None:
        """Begins to record the gradients of `optimizer`, before the first step; with the task `grad_probe`.

        Raises:
            ConfigError: The task is another one, or as `GradientMonitor.monitor`.
        """
        self._monitor = self._monitor or GradientMonitor(self.config)
        self._monitor.monitor(optimizer)

    def _end(self) -> None:
        """Writes an unfinished step at the end of the process; an overflow was reported before."""
        with contextlib.suppress(OverflowDetected):
            self.stop()

    def _note_optimizer(self, optimizer: nn.Cell) -> None:
        recording = None if self._session is None else self._session.recording
        if isinstance(recording, DumpRecording):
            recording.note_optimizer(optimizer_settings(optimizer))

    def _hook(self, nets: tuple[nn.Cell, ...]) -> None:
        if all(net in self._nets for net in nets) and (self._apis is not None or not self.config.apis):
            return
        self._nets = tuple(dict.fromkeys((*self._nets, *nets)))
        if nets and (self.config.modules or self.config.apis or self.config.task == "overflow_check"):
            hook_modules(nets)
        if nets and self.config.apis:
            hook_operators(nets)
        if self.config.apis:
            self._apis = ApiHooks(self._nets)

    def _recording(self) -> StepRecording:
        if self.config.task == "overflow_check":
            weights = [weight for net in self._nets for weight in net.trainable_params()]
            sees_all = self.config.apis
            return OverflowRecording(self.config, self.folder, self._counter, sees_all=sees_all, weights=weights)
        return DumpRecording(DumpWriter(self.folder, self.config, environment()))

    @property
    def folder(self) -> Path:
        """Where the files of the current step go."""
        return self.config.dump_path / f"step{self._step}" / f"rank{_rank()}"

    def _say_compiled(self, name: str) -> None:
        if not any("ms.jit" in sentence for sentence in self._said):
            self._say(f"{name} is under ms.jit: compiled functions are recorded only without ms.jit.")

    def _say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            _LOG.warning(sentence)


def _settings(
    config: str | Path | DumpConfig | NPURunConfig | DebuggerConfig | None, others: dict[str, Any]
) -> DebuggerConfig:
    if isinstance(config, NPURunConfig):
        if config.dump_config is None:
            raise ConfigError("config_path", "NPURunConfig", "this one has no dump_config, so nothing is asked for")
        config = config.dump_config
    if config is None:
        return DebuggerConfig.of(others, "PrecisionDebugger")
    if not isinstance(config, (DumpConfig, DebuggerConfig)):
        return DebuggerConfig.read(config, **others)
    if others:
        raise ConfigError("config_path", type(config).__name__, f"{', '.join(others)} can stand beside a file only")
    return config.settings() if isinstance(config, DumpConfig) else config


def _networks(model: Any) -> tuple[nn.Cell, ...]:
    nets = () if model is None else tuple(model) if isinstance(model, (list, tuple)) else (model,)
    for net in nets:
        if not isinstance(net, nn.Cell):
            raise ConfigError("model", type(net).__name__, "it must be a mindspore.nn.Cell, or a list of them")
    return nets


def _rank() -> int:
    return int(get_rank()) if GlobalComm.INITED else 0
