"""How every device stands, for people and programs to look at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from asd import fault_code
from asd.event import VERDICTS
from asd.handler.db.agent_rows import silent_agents
from asd.handler.db.isolations import Isolations
from asd.handler.db.store import Store
from asd.handler.decide.suspicion import Suspicion
from asd.handler.policy import SUSPICION, Policy
from asd.rules.step.strikes import LIMIT, WINDOW_SECONDS

__all__ = ["DeviceStanding", "device_standings", "policy_of", "standings_json"]

_INFORMATION = "node type=SoC, sensor type=Check Sensor, event state=check fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceStanding:
    """How one device stands.

    Attributes:
        number: Its number in the store.
        host: Its machine.
        device: Its name there.
        rank: Rank of the last event about it; -1 when it is not known.
        strikes: Strikes of the window that count or may still count.
        limit: So many take it out.
        suspicion: What its strikes come to with those of the months before, 0 by the rule `strikes`.
        verdicts: How often a replay found each of `asd.event.VERDICTS`.
        state: `in use`, or the state of its case: `isolating`, `isolated`, `releasing`, or `dry`.
        isolated_by: Which isolator took it out, `others` when somebody else did; else empty.
        since: When it was taken out, in seconds since the epoch; 0 when it was not.
        reason: Why it was taken out or released last.
        evidence: Folder with the last evidence; empty when there is none.
        error: The last failure of the engine, while it lasts.
        attempts: How often it failed in a row.
        next_try: When it is asked again, in seconds since the epoch; 0 when it is not.
        tested: When its last stress test was, in seconds since the epoch; 0 when there was none.
        sound: Whether it passed that.
        unheard_since: Since when the agent of its machine can't be reached, in seconds since the epoch; 0 while it can,
            and where no agent is pulled from.
    """

    number: int
    host: str
    device: str
    rank: int
    strikes: int
    limit: int
    suspicion: float
    verdicts: dict[str, int]
    state: str
    isolated_by: str
    since: float
    reason: str
    evidence: str
    error: str
    attempts: int
    next_try: float
    tested: float
    sound: bool
    unheard_since: float = 0.0

    @property
    def healthy(self) -> bool:
        """Whether nothing is held against it."""
        return not self.strikes and self.state == "in use" and self.isolated_by != "others"

    @property
    def health(self) -> dict[str, str]:
        """The three fields that `npu-smi info -t health` prints."""
        return {
            "Health Status": "OK" if self.healthy else "Warning",
            "Error Code": "NA" if self.healthy else fault_code.CHECK_FAIL,
            "Error Information": "NA" if self.healthy else _INFORMATION,
        }

    def to_json(self) -> dict[str, Any]:
        """Everything, JSON-able."""
        times = {name: _moment(getattr(self, name)) for name in ("since", "tested", "next_try", "unheard_since")}
        return {**asdict(self), **times, "sound": self.sound if self.tested else None, "health": self.health}


def _moment(seconds: float) -> str | None:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds") if seconds else None


def policy_of(store: Store) -> Policy:
    """The numbers by which the handler that acts on a store counts strikes."""
    return Policy(
        rule=store.meta("rule", SUSPICION),
        strikes=int(store.number("strikes", LIMIT)),
        window_seconds=store.number("window_seconds", WINDOW_SECONDS),
        half_life_seconds=store.number("half_life_seconds", Policy().half_life_seconds),
    )


def standings_json(standings: Sequence[DeviceStanding]) -> str:
    """What `asd devices --json` prints and `/devices` answers, without the end of the line."""
    return json.dumps([each.to_json() for each in standings], ensure_ascii=False, indent=1)


def device_standings(store: Store, policy: Policy, now: float) -> list[DeviceStanding]:
    """Every known device, by host and name, as of `now` in seconds since the epoch."""
    book, cases = Suspicion(store, policy), Isolations(store)
    rows = store.db.execute(
        "SELECT n, host, name, rank, transient, persistent, software, undetermined, evidence, tested, sound "
        "FROM device ORDER BY host, length(name), name, shared_rank"
    ).fetchall()
    strikes = book.standings(now)
    unheard = {agent.node: agent.since for agent in silent_agents(store).values()}
    standings = []
    for number, host, name, rank, *counts, evidence, tested, sound in rows:
        case = cases.last(number)
        is_open = case is not None and case.closed is None
        others = case is not None and case.state == "others"
        standings.append(
            DeviceStanding(
                number=number,
                host=host,
                device=name,
                rank=rank,
                strikes=strikes[number].strikes if number in strikes else 0,
                limit=policy.strikes,
                suspicion=0.0 if policy.forgets or number not in strikes else round(strikes[number].score, 3),
                verdicts=dict(zip(("transient", "persistent", "software", "undetermined"), counts, strict=True)),
                state=case.state if case is not None and is_open else "in use",
                isolated_by="others" if others else case.isolator if case is not None and is_open else "",
                since=case.opened if case is not None and (is_open or others) else 0.0,
                reason="" if case is None else case.why_released or case.reason,
                evidence=evidence,
                error=case.error if case is not None and is_open else "",
                attempts=case.attempts if case is not None and is_open else 0,
                next_try=case.next_try if case is not None and is_open else 0.0,
                tested=tested,
                sound=bool(sound),
                unheard_since=unheard.get(host, 0.0),
            )
        )
    return standings


assert set(VERDICTS) == {"transient", "persistent", "software", "undetermined"}
