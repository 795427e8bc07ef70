"""Record of each device, for people and programs to look at."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import msgspec

from asd import fault_code
from asd.event import HEALTH, VERDICTS
from asd.handler.db.cases import Case, Cases
from asd.handler.db.fleet import Fleet
from asd.handler.db.store import Store
from asd.handler.decide.incidents import StrikeCount
from asd.handler.decide.strikes import Strikes
from asd.handler.model.policy import LIMIT, Policy
from asd.origin import UNKNOWN, Hardware
from asd.records import time_text


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """One device."""

    host: str  # its machine
    device: str  # its name there
    rank: int  # rank of the last event about it; -1 when it is not known
    strikes: int = 0  # strikes of the window that count or may still count
    limit: int = LIMIT  # number of strikes that isolates it
    suspicion: float = 0.0  # what its strikes come to with those of the months before
    verdicts: dict[str, int] = field(default_factory=dict)  # how often a replay found each of `asd.event.VERDICTS`
    state: str = "in use"  # `in use`, or the state of its case: `isolating`, `isolated`, `releasing`, or `dry`
    isolated_by: str = ""  # which isolator took it out, `others` when somebody else did; else empty
    since: float = 0.0  # time of its isolation, in seconds since the epoch; 0 when it is not isolated
    reason: str = ""  # reason of its last isolation or release
    cause: str = ""  # what that came from, one of `asd.handler.db.cases.Cause`
    ending: str = ""  # why it ended or is to end, one of `asd.handler.db.cases.Ending`
    evidence: str = ""  # folder with the last evidence; empty when there is none
    error: str = ""  # the last failure of the scheduler, while it lasts
    attempts: int = 0  # how often it failed in a row
    next_try: float = 0.0  # when it is asked again, in seconds since the epoch; 0 when it is not
    tested: float = 0.0  # when its last stress test was, in seconds since the epoch; 0 when there was none
    sound: bool = False  # whether it passed that
    number: int = 0  # its number in the store; 0 where there is none
    serial: str = ""  # what its maker calls it; empty when it is not known
    hardware: Hardware = UNKNOWN  # as its agent reported it last; in JSON its fields are among these

    @property
    def suspect(self) -> bool:
        """True where it has as many strikes as isolate a device."""
        return self.strikes >= self.limit

    @property
    def isolated(self) -> bool:
        """True where it was isolated and not released."""
        return self.state == "isolated"

    @property
    def healthy(self) -> bool:
        """True where it has no strikes, is in use and is not isolated by others."""
        return not self.strikes and self.state == "in use" and self.isolated_by != "others"

    @property
    def health(self) -> dict[str, str]:
        """The three fields that `npu-smi info -t health` prints."""
        return {
            "Health Status": "OK" if self.healthy else "Warning",
            "Error Code": "NA" if self.healthy else fault_code.CHECK_FAIL,
            "Error Information": "NA" if self.healthy else HEALTH,
        }

    def to_json(self) -> dict[str, Any]:
        """Returns all fields, ready for JSON."""
        times = {name: getattr(self, name) for name in ("since", "tested", "next_try")}
        times = {name: time_text(seconds) if seconds else None for name, seconds in times.items()}
        known = {**asdict(self), **asdict(self.hardware), **times, "health": self.health}
        del known["hardware"]
        return known | {"sound": self.sound if self.tested else None}


def policy_of(store: Store) -> Policy:
    """Returns the numbers by which the handler that acts on a store counts strikes."""
    return msgspec.json.decode(store.meta("policy", "{}"), type=Policy)


def device_records(store: Store, policy: Policy, now: float) -> list[DeviceRecord]:
    """Returns every known device, by host and name, as of `now` in seconds since the epoch."""
    cases = Cases(store)
    rows = store.db.execute(
        f"SELECT n, host, name, rank, {', '.join(VERDICTS)}, evidence, tested, sound, serial "
        "FROM device ORDER BY host, length(name), name, last"
    ).fetchall()
    strikes = Strikes(store, policy).of_all(now)
    fleet = {each[:3]: each.hardware for each in Fleet(store).used()}
    records = []
    for number, host, name, rank, *counts, evidence, tested, sound, serial in rows:
        found = strikes.get(number, StrikeCount(0, 0))
        verdicts, suspicion = dict(zip(VERDICTS, counts, strict=True)), round(found.score, 3)
        record = DeviceRecord(host, name, rank, found.strikes, policy.strikes, suspicion, verdicts)
        record = replace(record, evidence=evidence, tested=tested, sound=bool(sound), number=number, serial=serial)
        record = replace(record, hardware=fleet.get((host, name, serial), UNKNOWN))
        case = cases.last(number)
        is_old = case is not None and (case.closed or now) < now - policy.memory_seconds  # kept for the fleet alone
        records.append(record if case is None or is_old else _with_case(record, case))
    return records


def _with_case(record: DeviceRecord, case: Case) -> DeviceRecord:
    is_open, others = case.closed is None, case.state == "others"
    test = "; it is given back after a stress test that it passes" if case.wants_test else ""
    reason = case.why_released or f"{case.reason}{test}"
    why: dict[str, Any] = {"reason": reason, "cause": case.cause, "ending": case.ending}
    since, isolated_by = (case.opened, "others" if others else case.isolator) if is_open or others else (0.0, "")
    if is_open:
        why |= {name: getattr(case, name) for name in ("state", "error", "attempts", "next_try")}
    return replace(record, since=since, isolated_by=isolated_by, **why)
