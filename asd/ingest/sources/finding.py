"""What one line of a vendor's log says."""

from __future__ import annotations

import math
from dataclasses import dataclass

from asd.event import CODE
from asd.verdict import Level

__all__ = ["LogFinding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    """An alarm as it stands in a line; what the line does not say is left at its default.

    Attributes:
        rule: Who raised it: `silent_check_v2`, `silent_check_v3`, `combined`, `torch_npu` or `driver`.
        level: `Level.ERROR` for the first level, `Level.WARNING` for the second, `Level.NORMAL` for a recovery.
        reason: Why, in a few words.
        kind: `anomaly` or `recovery`.
        feature: What the value is: `l2` or `max_square`; empty without a value.
        value: The feature value; NaN without one.
        limits: The first-level limit that the line implies, if it does.
        step: How many checks the site had before this one, the nearest to a step that these lines print; 0 without.
        checkpoint: Name of the parameter or site, if the line has one.
        rank: Rank it is about; None when the line does not say.
        device: Device it is about, for example `Ascend:3`; empty when the line does not say.
        host: Machine it is about; empty when the line does not say.
        when: Local time of the alarm as it stands there, where it has one of its own; empty for that of the line.
        time: The same in seconds since the epoch, where that is what stands there.
        code: Fault code.
        fact: Names what happened, where several lines may tell the same; empty when the line is all there is.
        repeats_within: Seconds within which the same rank, rule and reason again is the same fact.
    """

    rule: str
    level: Level
    reason: str
    kind: str = "anomaly"
    feature: str = ""
    value: float = math.nan
    limits: tuple[float, ...] = ()
    step: int = 0
    checkpoint: str = ""
    rank: int | None = None
    device: str = ""
    host: str = ""
    when: str = ""
    time: float | None = None
    code: str = CODE
    fact: str = ""
    repeats_within: float = 0.0
