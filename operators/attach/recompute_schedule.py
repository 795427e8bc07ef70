"""Which checksums a training has and when they are due: after a suspicion, or when the combined scheme says so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil

import mindspore as ms
from mindspore import Parameter, nn

from asd.config import Config
from asd.operators.attach.checksum import Checksum, claim_checked
from asd.operators.gate.part import Part, StepRecord
from asd.operators.measure.gradient_samples import POLL_STEPS, poll
from asd.operators.private.layout import why_products_are_unchecked
from asd.operators.recompute.mean import check_means
from asd.operators.table.site import Site
from asd.rules.checksum import ScoreRule
from asd.rules.readings.reading import RESULTS

__all__ = ["ASKED_BY", "RecomputeSchedule"]

ASKED_BY = "ASD_OPTIONS=tiers:checksum"
"""The setting that asks for checksums, as the log and the status name it."""

_A_STEP = 4
"""Results that are checked in a step by default, at most: nobody measures what they cost."""
_TOO_DEAR = (
    "a compiled graph can't skip what is not due, and would compute every result a second time "
    "in every step; ASD_PROTECTION=document with ASD_RULE=adaptive and "
    "ASD_OPTIONS=tiers:finite+adaptive+checksum asks for that"
)


class RecomputeSchedule(Part):
    """The checksums of one `StepMonitor`.

    Args:
        config: Whether the combined scheme may switch them on, and whether they are a tier.
        checksum: True for a `Checksum` with its defaults, False for none, None for what `config` says.

    Attributes:
        checksum: What is due when; None where nothing is checked.
    """

    def __init__(self, config: Config, checksum: bool | Checksum | None) -> None:  # noqa: FBT001 - as in StepMonitor
        self._by_default = checksum is None and config.protection == "full"
        self._combined = config.combined.enable and config.combined.with_checksum
        self._looks_again = config.confirm > 0
        self._waits = False  # for a strike-out: nothing else may switch it on
        if checksum is None:
            checksum = "checksum" in config.active_tiers
        self.checksum = Checksum() if checksum is True else checksum or None
        # Not where check operators or a strike-out bring a schedule later.
        self._checks_means = self.checksum is not None
        if self.checksum is None:
            self._wait_for_strikes()

    def _wait_for_strikes(self) -> None:
        if self._combined:
            self.checksum, self._waits = Checksum(every=0, suspicious_steps=0), True

    @property
    def words(self) -> str:
        """When they are due; empty where none is wanted by itself."""
        if self.checksum is None or self._waits or not self.checksum.every:
            return ""
        return f"each result in one step of {self.checksum.every}"

    def why_too_dear(self) -> str:
        """Why what protection `full` brings is left out, or empty where it is not; asked before anything is put in."""
        if not (self._by_default and self._checks_means) or why_products_are_unchecked():
            return ""
        return _TOO_DEAR if ms.get_context("mode") == ms.GRAPH_MODE else ""

    def leave_out(self) -> None:
        """Leaves them out; check operators and a strike-out can still bring a schedule."""
        self.checksum, self._checks_means = None, False
        self._wait_for_strikes()

    def install(self, net: nn.Cell) -> list[Site]:
        """Puts checks on the products and norms of `net`, if wanted; else takes those its check operators bring."""
        return self.checksum.install(net) if self.checksum is not None else claim_checked(net)

    def install_on_means(self, reducer: nn.Cell, weights: Sequence[Parameter]) -> list[Site]:
        """Checks the means over the ranks that `reducer` makes of the gradients of `weights`, if wanted.

        Raises:
            UnsupportedError: No slot is free.
        """
        return check_means(reducer, weights) if self._checks_means else []

    def expect(self, sites: Iterable[Site]) -> None:
        """Says which checkpoints there are: check operators with a turn want a schedule, asked for or not."""
        results = sum(site.kind in RESULTS for site in sites)
        if self.checksum is None and results:
            self.checksum = Checksum()
        if self.checksum is not None and self._by_default and not self._waits:
            self.checksum.every = max(self.checksum.every, ceil(results / _A_STEP))
        if self.checksum is not None:
            self.checksum.gate = self.gate

    def make_all_due(self) -> None:
        """Makes all that is computed before the next `after` due."""
        if self.checksum is not None and not self._waits:
            self.checksum.make_all_due()

    @property
    def schedules(self) -> bool:
        """Whether anything is to be said about the next step."""
        return self._combined or self.checksum is not None

    def plan_next(self, step: StepRecord) -> None:
        """Asks the ranks about their strikes when it is time, and schedules the next step; a call of all ranks.

        Raises:
            RankLostError: A rank did not answer.
        """
        if self._combined:
            monitor = self.monitor
            failed = any(event.rule == ScoreRule.name for event in step.events)
            own = monitor.judges.scheme.message(monitor.clock(), failed=failed)
            if step.number % POLL_STEPS == 0:
                poll(monitor.judges.scheme, own, self.ranks)
        # A second look has checked all results of a step with warnings already; healthy trainings have some.
        suspicious = step.fatal is not None if self._looks_again else bool(step.events)
        self.schedule(step.number + 1, suspicious=suspicious)

    def schedule(self, step: int, *, suspicious: bool) -> None:
        """Says what is due in `step`, the next one."""
        if self.checksum is not None:
            self.checksum.begin_step(step, suspicious=suspicious, everything=self.monitor.judges.scheme.running)
