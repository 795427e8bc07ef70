"""Makes a refused step again, where that is wanted, and reports who is to blame for its anomaly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mindspore import Parameter, nn

from asd.config import Config
from asd.errors import RankLostError, UnsupportedError
from asd.operators.gate.part import Part, StepRecord
from asd.operators.measure.step_tensors import bits_of_first
from asd.operators.rerun.repeatable_step import RepeatableStep, Step
from asd.operators.rerun.replay import Replay
from asd.rules.diagnosis.rerun import Answer, Diagnosis
from asd.rules.readings.reading import OF_ALL_RANKS

__all__ = ["StepReplay"]


class StepReplay(Part):
    """The replays of one `StepMonitor`; until `watch` is called it knows no step.

    Args:
        config: Whether updates can be refused, and the share of steps that may be made again before their update.
        wanted: Whether steps are made again at all.
        scaler: Holds the loss scale; its Parameters are put back after a replay as those of the network are.
    """

    def __init__(self, config: Config, *, wanted: bool, scaler: Any) -> None:
        self.wanted = wanted
        self._confirms = config.confirm > 0
        self._config, self._scaler = config, scaler
        self._replay: Replay | None = None
        self._why_not = "no optimizer was given" if config.refuses else "ASD_ON_ANOMALY is log, so no update is refused"

    def watch(self, net: nn.Cell | None, optimizer: nn.Cell) -> None:
        """Makes the steps of `net` repeatable; must be called before it is compiled."""
        self._replay = None
        if not (self.wanted or self._confirms):
            return
        if net is None:
            self._why_not = "the network is not known"
            return
        held = vars(self._scaler).values() if hasattr(self._scaler, "__dict__") else ()
        try:
            also = [value for value in held if isinstance(value, Parameter)]
            self._replay = Replay(net, optimizer, self.gate.sites, also, self.ranks, keeps_moving=self._confirms)
        except UnsupportedError as error:
            self._why_not = str(error)

    def tell(self, *, after_first_step: bool = False) -> None:
        """Says whether steps are made again, or why they can't be; much of that is known after the first step only."""
        asking = [
            name
            for name, asks in (("ASD_OPTIONS:replay", self.wanted), ("ASD_OPTIONS:confirm", self._confirms))
            if asks
        ]
        reason = self._why_not if self._replay is None else self._replay.step.obstacle() if after_first_step else ""
        for name in asking if reason else ():
            self.monitor.protections.lacks(name, f"no step will be made again: {reason}")
        self.monitor.protections.has(
            second_look=f"of {100 * self._config.confirm:.3g} % of the steps at most"
            if self._confirms and not reason
            else "",
            replay="of refused steps" if self.wanted and not reason else "",
        )

    def remember(self, step: Step) -> None:
        """Says that `step` comes next."""
        if self._replay is not None:
            self._replay.remember(step)

    def forget(self, step: StepRecord) -> None:
        """Says that the step that was remembered is over."""
        if self._replay is not None:
            self._replay.step.forget()

    @property
    def remembers(self) -> bool:
        """Whether it wants to be told of steps."""
        return self._replay is not None

    @property
    def step(self) -> RepeatableStep | None:
        """The last step, to be made again; None where that is not known."""
        return self._replay.step if self._replay is not None else None

    def judge(self, step: StepRecord) -> None:
        """Makes a refused step again; in data parallel a call of all ranks.

        It adds the verdict about this rank, if that has an anomaly of its own.

        Raises:
            RankLostError: Another rank did not answer.
        """
        if not step.refused:
            return
        monitor, fatal = self.monitor, step.fatal
        named = fatal is not None and fatal.kind == "anomaly" and fatal.rank >= 0
        anomaly = fatal if named else None
        kinds = {reading.checkpoint: reading.kind for reading in monitor.readings}
        # The first anomaly is what began it: where that is a mean, nothing that this rank computed alone broke a limit.
        in_mean = anomaly if anomaly is not None and kinds.get(anomaly.checkpoint) in OF_ALL_RANKS else None
        anomaly = None if in_mean is not None else anomaly
        finding: Diagnosis | None = Diagnosis(
            "undetermined", "the network is not known, so its steps can't be made again"
        )
        if self._replay is not None:
            try:
                answer = Answer.of(bits_of_first(step.outputs), monitor.readings)
                finding = self._replay.judge(answer, anomaly, step.scale)
            except RankLostError:
                raise
            except Exception as error:  # as in `StepMonitor.step`
                monitor.problem(f"a step was not replayed: {error!r}")
                finding = Diagnosis("undetermined", f"the replay failed: {error}")
        if in_mean is not None:
            anomaly, finding = in_mean, Diagnosis("undetermined", "a mean over the ranks is no answer of one of them")
        if anomaly is None or finding is None:
            return
        reason = finding.reason
        if finding.verdict == "software":
            reason += f"; if it is data, then the batch of rank {anomaly.rank} in step {anomaly.step}"
        event = replace(anomaly, kind="replay", verdict=finding.verdict, reason=reason, time=monitor.clock())
        monitor.publish(event)
        step.events.append(event)
