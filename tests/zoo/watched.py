"""Trainings with monitors and trainings to compare them with."""

import logging
import tempfile
from typing import Any

from trainings import Fault, State, Training

from asd import Config, Event, Level
from asd.operators import StepMonitor

_STATISTICS = ("moving_mean", "moving_variance")  # a refused step has counted its batch there


class _Log(logging.Handler):
    """What the package says in words: each warning, and at INFO what is not active or not as it was."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.levelno >= logging.WARNING or " not " in message or "in other groups" in message:
            self.lines.append(message)


class Watched(Training):
    """A training with monitors, and what they said."""

    def __init__(self, kind: str, precision: str, environ: dict[str, str], fault: Fault | None = None) -> None:
        self._events: dict[StepMonitor, list[Event]] = {}
        logger, log = logging.getLogger("asd"), _Log()
        level, propagate = logger.level, logger.propagate
        logger.addHandler(log)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        self.log = log.lines  # lines of the log that say that something is wrong or not active
        with tempfile.TemporaryDirectory() as folder:
            config = Config.from_env({"NPU_ASD_ENABLE": "1", "ASD_RUN_DIR": folder, **environ})

            def monitor(scale: Any) -> StepMonitor:
                events: list[Event] = []
                made = StepMonitor(config, sinks=[events.append], loss_scale=scale)
                self._events[made] = events
                return made

            try:
                super().__init__(kind, precision, monitor, fault)
            finally:
                logger.removeHandler(log)
                logger.setLevel(level)
                logger.propagate = propagate

    @property
    def events(self) -> list[list[Event]]:
        """Of each monitor."""
        return [self._events[each] for each in self.monitors]

    def of(self, level: Level, monitor: int | None = None) -> list[Event]:
        """The anomalies of a level, of all monitors or one."""
        chosen = self.events if monitor is None else [self.events[monitor]]
        return [each for events in chosen for each in events if each.kind == "anomaly" and each.level is level]

    @property
    def problems(self) -> list[str]:
        """What a monitor said that it could not do."""
        return [each.reason for events in self.events for each in events if each.kind == "problem"]

    @property
    def status(self) -> list[Any]:
        """Of each monitor that was attached."""
        return [each.monitor.status for each in self.monitors if each.monitor is not None]

    def says(self, *words: str) -> bool:
        """Whether a problem or a line of `log` has one of these words."""
        told = " ".join([*self.problems, *self.log]).lower()
        return any(word in told for word in words)


class Plain:
    """The same training without detection: one, and more of them while a watched one is equal to none.

    MindSpore's first training of a process may end otherwise than all later ones, and what its threads draw for a
    dropout is not the same each time.
    """

    def __init__(self, kind: str, precision: str) -> None:
        self._what = kind, precision
        self.all = [Training(kind, precision)]

    @property
    def repeatable(self) -> bool:
        """Whether all of them are alike."""
        return all(is_same(self.all[0], each) for each in self.all)

    def like(self, watched: Training) -> bool:
        """Whether one of them is `watched`, bit for bit."""
        while not any(is_same(each, watched) for each in self.all):
            if len(self.all) == (8 if self.all[0].draws else 3):
                return False
            self.all.append(Training(*self._what))
        return True

    def moves(self) -> bool:
        """Whether it ends otherwise with an idle operator in the place of each product: nothing can be equal to it."""
        return not any(is_same(each, Training(*self._what, wrapped=True)) for each in self.all)


def is_same(one: Training, other: Training) -> bool:
    """Whether losses, weights and optimizers are equal bit for bit."""
    return one.losses == other.losses and not differing(one.after, other.after)


def differing(one: State, other: State, *, statistics: bool = True) -> list[str]:
    """Names of what is not the same in both."""
    names = [name for name in one if statistics or not name.endswith(_STATISTICS)]
    return [name for name in names if one[name] != other.get(name)]
