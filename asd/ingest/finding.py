"""An alarm as it stands in a line of a log."""

from __future__ import annotations

import math
from dataclasses import dataclass

from asd.event import CODE
from asd.verdict import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding:
    """An alarm as it stands in a line; what the line does not say is left at its default.

    Attributes:
        rule: Who raised it: `silent_check_v2`, `silent_check_v3`, `combined` or `driver`.
        level: `Level.ERROR` for the first level, `Level.WARNING` for the second, `Level.NORMAL` for a recovery.
        reason: Why, in a few words.
        kind: `anomaly` or `recovery`.
        feature: What the value is: `l2` or `max_square`; empty without a value.
        value: The feature value; NaN without one.
        step: How many checks the site had before this one, the nearest to a step that these lines print; 0 without.
        checkpoint: Name of the parameter or site, if the line has one.
        rank: Rank it is about; None when the line does not say.
        device: Device it is about, for example `Ascend:3`; empty when the line does not say.
        host: Machine it is about; empty when the line does not say.
        time: In seconds since the epoch, where it has one of its own; 0 for that of the line.
        code: Fault code.
    """

    rule: str
    reason: str
    level: Level = Level.ERROR
    kind: str = "anomaly"
    feature: str = ""
    value: float = math.nan
    step: int = 0
    checkpoint: str = ""
    rank: int | None = None
    device: str = ""
    host: str = ""
    time: float = 0.0
    code: str = CODE
