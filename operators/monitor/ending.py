"""Decides whether an event ends a training, and how: for good, or with a roll-back by MindSpore."""

from typing import Any

from mindspore.train import TrainFaultTolerance

from asd.config import Config, rolls_back
from asd.errors import AnomalyDetected, TrainingResultError
from asd.event import Event

_MOST_ROLL_BACKS = 10


class Ending:
    """Decision on the end of the trainings of one `StepMonitor`.

    Args:
        config: Its `on_anomaly` decides on first-level anomalies.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._can_roll_back = False
        self.roll_backs: list[int] = []  # steps after which one was requested

    def look_for_roll_back(self, callbacks: Any) -> None:
        """Enables roll-backs if `callbacks` have MindSpore's callback for it and the environment switches it on."""
        self._can_roll_back = rolls_back() and any(isinstance(each, TrainFaultTolerance) for each in callbacks)

    def after(self, step: int, fatal: Event | None, damage: Event | None = None) -> AnomalyDetected | None:
        """Returns the exception to raise after `step`; None if the training goes on.

        Args:
            step: Last step made. The same step is not rolled back a second time.
            fatal: A first-level anomaly, or None.
            damage: Event of weights that are damaged already, which refusing an update cannot repair, or None.
        """
        if fatal is None or self._config.on_anomaly != "stop":
            fatal = damage if self._config.refuses else None
        if fatal is None:
            return None
        if not self._can_roll_back or step in self.roll_backs or len(self.roll_backs) == _MOST_ROLL_BACKS:
            return AnomalyDetected(fatal)
        self.roll_backs.append(step)
        return TrainingResultError(fatal)
