"""Events of a rank: anomalies, anomalies that follow another rank's, and problems of the detector."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from asd.diagnosis.attribution import Attribution
from asd.diagnosis.weights import Difference
from asd.event import Event
from asd.fault_code import NO_FAULT
from asd.judge.detectors import Judged
from asd.origin import Origin
from asd.rules.reading import AVERAGED, Reading
from asd.verdict import Level, Verdict


class Reports:
    """Factory of the events of one rank; it does not publish them.

    Args:
        origin: Origin of the values.
        rule: Name of the rule that judges.
        feature: Feature of most of its verdicts.
        clock: Seconds since the epoch.
    """

    def __init__(self, origin: Origin, rule: str, feature: str, clock: Callable[[], float]) -> None:
        # which of several steps that were judged together is meant, in words; empty where a step is judged alone
        self.among = ""
        self._origin, self._rule, self._feature, self._clock = origin, rule, feature, clock

    def anomaly(
        self,
        step: int,
        reading: Reading,
        judged: Judged,
        *,
        rule: str,
        refused: bool,
        evidence: str,
        attribution: Attribution | None,
        cause: str = "",
    ) -> Event:
        """Returns the event of a checkpoint that broke a limit.

        Args:
            step: Step of the anomaly.
            reading: The values.
            judged: The rule's verdict about them.
            rule: Name of the rule.
            refused: Whether the update was kept away from the weights.
            evidence: Folder with the evidence; empty for none.
            attribution: Whose fault it was, if that is known; of another rank's this one's is a follower. Where it came
                from several ranks and none can be named, the first of them has an anomaly without a device.
            cause: Of `asd.event.CAUSES`, where the values show it; a training that diverges is no device's fault.
        """
        verdict, feature, broken = judged
        kind, reason, nobody = "anomaly", verdict.reason, False
        if attribution is not None and attribution.origin is not None and attribution.compared:
            cause = ""  # else its replicas would have it
        if verdict.level is Level.ERROR and attribution is not None:
            nobody = attribution.names_nobody
            kind = kind if attribution.origin in (None, self._origin.rank) else "follower"
            reason = _with(reason, attribution.reason) if len(attribution.ranks) > 1 else reason
        limits = (broken,) if math.isfinite(broken) else ()
        what = {"checkpoint": reading.checkpoint, "value": verdict.value, "limits": limits, "level": verdict.level}
        what |= {"feature": feature, "rule": rule, "refused": refused, "evidence": evidence, "cause": cause}
        event = self._event(kind, step, reason, **what)
        if cause == "divergence" and verdict.level is Level.ERROR and kind == "anomaly":
            return _of_nobody(event)
        return self._of_all_ranks(event, attribution) if nobody or reading.kind == AVERAGED else event

    def _of_all_ranks(self, event: Event, attribution: Attribution | None) -> Event:
        """Returns an anomaly of values that all ranks see alike."""
        if attribution is None:
            reason = _with(event.reason, "the ranks were not compared, so none can be named for their mean")
            return replace(_of_nobody(event), reason=reason)
        own, ranks = self._origin.rank, attribution.ranks
        if own == attribution.origin or (own in ranks and not attribution.shared):
            return event
        reason = attribution.reason if ranks else "all ranks have the same mean, so no rank is named"
        event = replace(event, reason=_with(event.reason, reason))
        # Where nobody is named the first of them tells of it.
        if own == min(ranks, default=0) and (attribution.names_nobody or not ranks):
            return _of_nobody(event)
        return replace(event, kind="follower")

    def state_anomaly(self, step: int, name: str, verdict: Verdict) -> Event:
        """Returns the event of a weight or optimizer state, called `name`, that broke a limit after `step`."""
        limits = (verdict.limit,) if math.isfinite(verdict.limit) else ()
        words = {"checkpoint": name, "feature": "max", "key": "state", "level": verdict.level}
        return self._event("anomaly", step, verdict.reason, value=verdict.value, limits=limits, **words)

    def follower(self, step: int, attribution: Attribution | None = None) -> Event:
        """Returns the event of another rank's first-level anomaly in `step`; no value of this rank broke a limit."""
        reason = "another rank refused the update"
        if attribution is not None and attribution.ranks:
            reason = f"{reason}: {attribution.reason}"
        return self._event("follower", step, reason, refused=True)

    def withheld(self, step: int, reason: str) -> Event:
        """Returns the event of an update in `step` that was refused because of an earlier step."""
        return self._event("follower", step, f"the update was refused because {reason}", refused=True)

    def weights_differ(self, step: int, found: Difference) -> Event:
        """Returns the event of ranks with different weights: an anomaly on those that differ from the majority.

        Where no majority is, rank 0 has one that names no device; of second level where rounding explains it.
        """
        reason = f"the weights of the ranks are not alike: {found.reason}"
        return self._of_some(step, "weight_hash", "differing", found, reason, checkpoint="weights")

    def link_fault(self, step: int, found: Difference, ranks: Sequence[int], *, refused: bool) -> Event:
        """Returns the event of a reduction over `ranks` whose results are not the sums of what went in.

        It names the ranks with other results than the majority, else no device.
        """
        words = {"checkpoint": found.weights[0], "refused": refused}
        return self._of_some(step, "link", "wrong_sums", found, found.reason, first=min(ranks), **words)

    def _of_some(
        self, step: int, rule: str, feature: str, found: Difference, reason: str, *, first: int = 0, **more: Any
    ) -> Event:
        """Returns an anomaly on the ranks that differ, or on the `first` where none is known; else a follower."""
        anomaly = self._origin.rank in (found.odd or (first,))
        more |= {"rule": rule, "feature": feature, "value": float(len(found.weights)), "limits": (0.0,)}
        level = (Level.WARNING if found.is_rounding else Level.ERROR) if anomaly else Level.NORMAL
        # So many in the same step of another attempt are no sign of software.
        event = self._event("anomaly" if anomaly else "follower", step, reason, level=level, key=rule, **more)
        return _of_nobody(event) if anomaly and not found.odd else event

    def problem(self, step: int, checkpoint: str, reason: str) -> Event:
        """Returns the event of a failure of the detector itself; it does not concern the device."""
        return self._event("problem", step, reason, checkpoint=checkpoint, key=reason, code=NO_FAULT)

    def _event(self, kind: str, step: int, reason: str, **more: Any) -> Event:
        """Returns an event of this rank; without `more` it is about no value."""
        reason = _with(reason, self.among) if self.among and kind in ("anomaly", "follower") else reason
        usual = {"checkpoint": "", "value": math.nan, "limits": (), "level": Level.NORMAL, "refused": False}
        usual |= {"rule": self._rule, "feature": self._feature, "time": self._clock()}
        return Event(origin=self._origin, kind=kind, step=step, reason=reason, **{**usual, **more})


def _of_nobody(event: Event) -> Event:
    return replace(event, origin=replace(event.origin, rank=-1, device="unknown"))


def _with(reason: str, more: str) -> str:
    return reason if reason.endswith(more) else f"{reason}; {more}"
