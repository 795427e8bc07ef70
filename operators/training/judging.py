"""From the slots of a step to its verdicts, and back to the limits of the next one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from asd.attribution import Attribution
from asd.checkpoint_health import Health
from asd.config import Config
from asd.errors import RankLostError
from asd.event import Event
from asd.monitor import Monitor
from asd.operators.exchange import Exchange
from asd.operators.gate import Gate
from asd.operators.loss_scale import LossScale
from asd.operators.rank_features import comparable, features_of_ranks
from asd.operators.ranks import attribution_of
from asd.operators.site import Site
from asd.operators.slots import table
from asd.operators.training.problems import Problems
from asd.operators.training.state_checks import StateChecks
from asd.reading import SAMPLE, SCORES, Capture, Reading
from asd.tiers import KINDS, Features

__all__ = ["Judging", "Look"]

_NOTHING = "nothing was checked: the graph was compiled before the checks were put in, or no gradient reaches them"
_UNSUPPORTED = "a gradient has a type that can't be checked; valid are float16, bfloat16, float32, float64"


class Look(NamedTuple):
    """What is to be judged of a step.

    Attributes:
        readings: What its checkpoints saw; of its second run, if there was one.
        captures: Tensors that broke a limit, of the run that is to blame.
        again: Whether there was a second run.
        outputs: What it returned.
        lost: Why an update was refused for good though no rank has a first-level anomaly; else empty.
        vanished: The readings that were suspicious in the first run and not in the second.
        elsewhere: Whether any rank has such readings.
        attribution: Whose they are; None where no rank has any.
    """

    readings: Sequence[Reading]
    captures: Sequence[Capture]
    again: bool = False
    outputs: Any = None
    lost: str = ""
    vanished: Sequence[Reading] = ()
    elsewhere: bool = False
    attribution: Attribution | None = None

    def of_refused(self) -> Look:
        """The same where the second run is refused too: what is wrong in that one counts."""
        return self._replace(vanished=(), elsewhere=False, attribution=None)


class Judging:
    """That of one `StepMonitor`.

    Args:
        config: Which tiers are on.
        loss_scale: A `LossScale` or what it takes.
        state: Judges the weights and the optimizer's state.
        health: Every event of a step is added to it.
        problems: What is wrong in every step is told once.

    Attributes:
        loss_scale: Where the loss scale is read from.
        scale: The loss scale of the step that is running.
        gate: What this training has of the table.
        ranks: The ranks.

    Raises:
        ConfigError: `loss_scale` is not valid.
    """

    def __init__(self, config: Config, loss_scale: Any, state: StateChecks, health: Health, problems: Problems) -> None:
        self.loss_scale = loss_scale if isinstance(loss_scale, LossScale) else LossScale(loss_scale)
        self.scale = 1.0
        self.gate: Gate | None = None
        self.ranks = Exchange()
        self._config, self._state, self._health, self._problems = config, state, health, problems
        self._refused = 0

    @property
    def sites(self) -> list[Site]:
        """The checkpoints."""
        return self.gate.sites if self.gate is not None else []

    def own_gate(self, training: object) -> Gate:
        """The gate of this training, which is about to begin."""
        if self.gate is None or self.gate not in table().gates.living.values():
            self.gate = table().new_gate()
        self.gate.serve(training)
        return self.gate

    def begin(self, monitor: Monitor) -> None:
        """Writes the limits of the first step; what was refused before does not count."""
        self._refused = table().refused(self.gate)
        self.write_limits(monitor)

    def write_limits(self, monitor: Monitor, *, second_level: bool = False, scale: float | None = None) -> None:
        """Tells the gate what to compare the next step with.

        Args:
            monitor: Knows the limits.
            second_level: Whether what is suspicious is refused too, the too small included.
            scale: The loss scale of that step; read if not given.
        """
        self.scale = self.loss_scale.read() if scale is None else scale
        limit = monitor.second_limit if second_level else monitor.limit
        judged = [site for site in self.sites if site.kind != SAMPLE]
        least = [(site, monitor.least(site.name)) for site in judged] if second_level else []
        table().set_limits([(site, limit(site.name, site.kind)) for site in judged], self.scale, least, self.gate)

    def refused(self) -> int:
        """Updates refused since the last call."""
        new = table().refused(self.gate) - self._refused
        self._refused += new
        return new

    def refused_unread(self) -> int:
        """As `refused`, which will count them all the same."""
        return table().refused(self.gate) - self._refused

    def judge(
        self, monitor: Monitor, step: int, *, refused: bool, look: Look | None = None
    ) -> tuple[list[Event], Event | None]:
        """Judges the step that has just been made; in data parallel a call of all ranks.

        Args:
            monitor: Judges the readings and publishes the events.
            step: Its number.
            refused: Whether its update was refused.
            look: What was read of the step already, and what became of a second run.

        Returns:
            The events, and the first of first level.
        """
        slots = table()
        if look is None:
            captures = slots.captures(self.sites)
            look = Look(slots.read(self.sites, self.gate), captures)
        readings = [*look.readings, *self._wrong_elsewhere(monitor)]
        attribution = self._whose_fault(monitor, readings) if refused else look.attribution
        outcome = monitor.judge(
            step,
            readings,
            loss_scale=self.scale,
            overflow_expected=self.loss_scale.dynamic,
            refused=refused,
            captures=look.captures,
            attribution=attribution,
            ranks=self._seen_by_ranks(monitor, readings),
            vanished=look.vanished,
        )
        fatal = outcome.fatal
        if fatal is None:
            fatal = self._follow(monitor, step, attribution, refused=refused, apart=outcome.elsewhere, look=look)
            outcome.events.extend([fatal] if fatal is not None else [])
        if not refused:
            in_state = self._state.judge(monitor, step, readings)
            if in_state is not None:
                outcome.events.append(in_state)
                fatal = fatal or in_state
        if not readings:
            self._problems.once(monitor, _NOTHING)
            monitor.protections.lacks("NPU_ASD_ENABLE", _NOTHING, told=True)
        for event in outcome.events:
            self._health.add(event)
        if slots.unsupported():
            self._problems.once(monitor, _UNSUPPORTED)
            monitor.protections.lacks("NPU_ASD_ENABLE", _UNSUPPORTED, told=True)
        self.write_limits(monitor)
        return outcome.events, fatal

    def drop_strays(self) -> list[Reading]:
        """Empties what this step left at checkpoints of other monitors, and returns it.

        These are monitors that have seen no update of their own since they last read: a step that runs through their
        network is none of theirs. A step that updates both leaves both alone.
        """
        slots, gate = table(), self.gate
        if gate is None or len(slots.gates) < 2:
            return []
        strangers = [other for other in slots.gates.others(gate) if other.guards and not slots.updates(other)]
        return slots.read([site for other in strangers for site in other.sites])

    def _wrong_elsewhere(self, monitor: Monitor) -> list[Reading]:
        """What is computed wrongly is an anomaly of the step that did it, whoever checks the product."""
        return [each for each in self.drop_strays() if each.kind in SCORES and monitor.is_broken(each, self.scale)]

    def _follow(
        self, monitor: Monitor, step: int, attribution: Attribution | None, *, refused: bool, apart: bool, look: Look
    ) -> Event | None:
        """Reports that another rank has a first-level anomaly where this one has none."""
        if look.elsewhere:
            return monitor.follow(step, attribution)
        if look.lost:
            lost = "the update of a suspicious step is lost, and no later one is held back, for it can't be made again"
            monitor.problem(f"{lost}: {look.lost}")
            return None
        if not refused:
            return monitor.follow(step, refused=False) if apart else None
        # Nothing broke a limit here, so another rank did. Under a dynamic loss scale it may just have overflowed.
        return None if self.loss_scale.dynamic else monitor.follow(step, attribution)

    def _whose_fault(self, monitor: Monitor, readings: Sequence[Reading]) -> Attribution | None:
        try:
            return attribution_of(
                self.ranks,
                monitor.seen(readings, loss_scale=self.scale),
                monitor.seen(readings, loss_scale=self.scale, averaged=True),
            )
        except RankLostError:
            pass  # what this one saw is judged all the same; the exchange keeps the error, which ends the step
        except Exception as error:  # as in `StepMonitor.step`
            monitor.problem(f"the ranks could not be compared: {error!r}")
        return None

    def _seen_by_ranks(self, monitor: Monitor, readings: Sequence[Reading]) -> dict[str, list[Features]] | None:
        if "ranks" not in self._config.active_tiers or self.ranks.size == 1 or not comparable():
            return None
        try:
            sizes = [reading for reading in readings if reading.kind in KINDS]
            told = features_of_ranks(self.ranks, sizes, self.scale)
        except Exception as error:  # a rank may have died; what this one saw is judged all the same
            self._problems.once(monitor, f"the ranks could not be compared: {error}")
            return None
        if told is None:
            self._problems.once(monitor, "the ranks could not be compared: they did not see the same checkpoints")
        return told
