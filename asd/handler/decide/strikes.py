"""The strike book: which device was at fault in which steps, and which of these strikes count.

The only place that counts strikes. The fault handler decides by it; exporter and report show its counts.

| event | effect on the strikes |
|---|---|
| first-level anomaly | a strike of its step, which waits for others of its job |
| the same by many devices of one job at once | software or data: the strikes are revoked |
| the same step of many devices of one node at once, in any runs | software or data: the strikes are revoked |
| the same step, checkpoint and value in another attempt of the job | software or data: those there are revoked |
| ... by the same device alone, under another rank | the strike stays |
| replay: persistent or transient | the strike of that step counts at once |
| replay: software | the strikes of that step on its host are revoked |
| replay: undetermined | the strike counts once an incident, see `asd.handler.decide.incidents` |
| ... and another device of the job was at fault in that step too | the strike does not count |
| stress test: computed wrongly | a strike that counts at once |
| a person gave the device back | its strikes up to then count no more |
| the handler gave it back, or a vendor's own alarm is over | its strikes count on |

A node speaks for its own devices. For those of other nodes it is heeded

| nodes of the job | a report of another node |
|---|---|
| known, and both are among them | counts like one of the same node |
| known, and one of both is not among them | is ignored |
| not known | counts if as many nodes agree as devices make a burst: the strikes are withheld until a replay judges |
"""

import hashlib
import itertools
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Literal, NamedTuple

from asd.event import Event
from asd.handler.db.store import Store
from asd.handler.decide.hardware import JUDGED, KnownDevices
from asd.handler.decide.incidents import Strike, StrikeCount, count, incidents
from asd.handler.model.identity import job_of, moment, names_device, whole_event
from asd.handler.model.policy import SKEW_SECONDS, Policy
from asd.verdict import Level

Finding = Literal["", "strike", "software", "known", "repeated", "moved", "burst", "withheld"]
"""`strike`: of this device alone. `software`: a replay found software or data; `known`: that was found before.
`repeated`: another attempt of the job had the same value; `moved`: the same device had it, under another rank. `burst`:
many devices were at fault at once. `withheld`: many nodes report the same, but the nodes of the job are unknown."""

_COOLDOWN_SECONDS = 300.0  # anomalies whose step is not known are one strike within it, as in the vendor's check
_SPARE = 20  # strikes of a device that are kept beyond those that are needed
_PEERS = 1000  # those of a device that are kept until they settle
_HARDWARE_OF = "device IN (SELECT n FROM device WHERE host = ?)"
_UNHEARD = "unheard"  # a strike is revoked as long as only its replay was reported
_UNCLEAR = "unclear AND verdict = ''"
_NO_MEMBER, _UNKNOWN, _MEMBER = -1, 0, 1  # whether the job of a strike runs on its host: the column `vouched`
_STRIKES = f"""
SELECT strike.n, device, run, job, step, time, settled OR verdict <> '', verdict <> '', {_UNCLEAR}, incident,
    rule, checkpoint, value
FROM strike JOIN device ON device.n = device
WHERE {{}} AND revoked = '' AND time > cleared AND NOT ({_UNCLEAR} AND step > 0 AND EXISTS (
    SELECT 1 FROM strike AS peer JOIN device AS there ON there.n = peer.device
    WHERE peer.job = strike.job AND peer.step = strike.step AND peer.device <> strike.device
    AND (there.host = device.host OR peer.vouched > 0 AND strike.vouched > 0)))
ORDER BY device, time, strike.n"""


class EventReport(NamedTuple):
    """Event as the strike book takes it in, with what it is about."""

    event: Event
    device: int  # number of its device; 0 where it names none, or is not about strikes
    cleared: float  # strikes of the device up to then count no more
    job: str
    step: int  # the moment, see `moment`
    vouched: int  # whether the job runs on the host, as in a strike
    now: float

    @property
    def verdict(self) -> str:
        """Verdict about the device; empty where it brings none."""
        return self.event.verdict if self.event.kind in JUDGED else ""


class Counted(NamedTuple):
    """Effect of a report on the strikes."""

    finding: Finding = ""
    new: bool = False  # whether it added a strike, revoked or not
    of: str = ""  # with a burst, what its devices have in common, `job NAME` or `node NAME`
    many: int = 0  # how many devices or nodes these are; of a moved device the rank that it had before
    revoked: tuple[int, ...] = ()  # the devices of other strikes that count no more, or may count less, one for each


class _Many(NamedTuple):
    """Strikes that have one cause."""

    of: str  # what they have in common; empty where they are few
    where: str  # a condition for them
    values: tuple[object, ...]  # its parameters
    mark: Literal["burst", "withheld"] = "burst"  # why they count no more

    @property
    def each(self) -> str:
        """The counted column: devices, or hosts where one may make up any number of devices."""
        return "host" if self.mark == "withheld" else "device"


class Strikes:
    """Everything about strikes that the store holds. Used within a transaction, except for `of_all`.

    `hosts_of` returns the hosts of a job, none where they are not known. Without it, every source of events is trusted
    about every job.
    """

    def __init__(self, store: Store, policy: Policy, hosts_of: Callable[[str], Collection[str]] | None = None) -> None:
        self._store, self._policy, self._hosts_of = store, policy, hosts_of
        self.hardware = KnownDevices(store)
        self.written = 0  # characters that were written since this was set to 0

    def read(self, event: Event, now: float) -> EventReport:
        """Finds what an event is about, and records that its device was heard of."""
        event = replace(whole_event(event), time=min(event.time, now + SKEW_SECONDS))
        if event.kind == "stress":  # a failed known-answer test is hardware
            event = replace(event, verdict="persistent" if event.level is Level.ERROR else "")
        job = job_of(event.run)
        hosts = [event.host] if self._hosts_of is None else self._hosts_of(job)
        vouched = _UNKNOWN if not hosts else _MEMBER if event.host in hosts else _NO_MEMBER
        is_about = event.level is Level.ERROR if event.kind == "anomaly" else event.kind in ("stress", "recovery")
        is_about |= event.kind in JUDGED and bool(event.verdict)
        device, cleared = self.hardware.heard_of(event, now) if is_about and names_device(event) else (0, 0.0)
        return EventReport(event, device, cleared, job, moment(event), vouched, now)

    def count(self, report: EventReport) -> Counted:
        """Takes in any report; one that is not about strikes changes none."""
        event, device, verdict = report.event, report.device, report.verdict
        if event.kind == "replay" and verdict == "software":
            new = bool(device) and self._add(report, is_software=True)
            return Counted("software", new, revoked=self._blame(report))
        if not device:
            return Counted()
        if event.kind == "anomaly":
            return self._anomaly(report)
        if verdict == "undetermined":
            return Counted(revoked=self._note_unclear(report))
        if verdict:
            new = self._add(report)
            if new and event.kind == "replay":
                self._revoke_many(report)
            return Counted("strike", new)
        if event.kind == "recovery" and event.recovered_by == "person":
            self.hardware.clear(device, min(event.time, report.now))
        return Counted()

    def is_stale(self, event: Event, now: float) -> bool:
        """Returns whether an event is too old to act on, or from before the handler's first start or a reset."""
        return event.time < max(self._store.number("ignore_before"), now - self._policy.stale_seconds)

    def _anomaly(self, report: EventReport) -> Counted:
        """Takes in an anomaly, and finds whether others say that it is software or data."""
        event, device, job, step = report.event, report.device, report.job, report.step
        is_known = self.is_software(job, step, event.host)
        repeated, mark = self._repeated_on(report)
        new = self._add(report, is_software=is_known)
        if repeated and not is_known:
            rank = self._has_moved(report) if mark == "software" else None
            if rank is not None and not self.is_stale(event, report.now):
                return Counted("moved", new, many=rank)
            found: Finding = "repeated" if mark == "software" else "withheld"
            revoked = self._blame(report, repeated, mark)
            return Counted(found, new, f"job {job}", len({event.host, *repeated}), revoked)
        if not new:
            return Counted("known" if is_known else "strike")
        found_many = self._revoke_many(report)
        query = f"SELECT DISTINCT device FROM strike WHERE job = ? AND step = ? AND device <> ? AND {_UNCLEAR}"
        others = self._store.db.execute(query, (job, step, device)).fetchall()
        revoked = (*found_many.revoked, *(number for (number,) in others))
        finding = found_many.finding or ("known" if is_known else "strike")
        return found_many._replace(finding=finding, new=new, revoked=revoked)

    def _note_unclear(self, report: EventReport) -> tuple[int, ...]:
        """Notes that a replay was undetermined, maybe before the anomaly arrives; returns the devices that change."""
        device, step = report.device, report.step
        if not step:
            return ()
        query = "UPDATE strike SET unclear = 1 WHERE device = ? AND run = ? AND step = ? RETURNING device"
        found = self._store.db.execute(query, (device, report.event.run, step)).fetchall()
        if not found:
            self._insert(report, step, revoked=_UNHEARD, settled=1, unclear=1)
        return (device,) if found else ()

    def _add(self, report: EventReport, *, is_software: bool = False) -> bool:
        """Takes in an anomaly or a verdict about a step of a device; returns whether the step is a new strike."""
        db, event, device, verdict = self._store.db, report.event, report.device, report.verdict
        step = report.step or self._step(event, device)
        key = device, event.run, step
        row = db.execute("SELECT n, revoked FROM strike WHERE device = ? AND run = ? AND step = ?", key).fetchone()
        if row is not None and row[1] != _UNHEARD:
            if verdict:
                self._confirm(row[0], verdict)
            return False
        if row is not None:
            db.execute("DELETE FROM strike WHERE n = ?", row[:1])
        # A step whose update was applied is not re-run.
        is_applied = bool(report.step) and event.kind == "anomaly" and not event.harmless
        marks = {"revoked": "software" if is_software else "", "unclear": is_applied or row is not None}
        self._insert(report, step, verdict=verdict, settled=0, **marks)
        row = db.execute("UPDATE device SET strikes = strikes + 1 WHERE n = ? RETURNING strikes", (device,)).fetchone()
        if row[0] % _SPARE == 0:
            self._thin_out(device)
        return True

    def _thin_out(self, device: int) -> None:
        """Lets strikes inside a long incident, and the oldest of too many, count no more; forgets those that settled.

        Until then they are peers of strikes of the same step in logs that are read later.
        """
        db, update = self._store.db, "UPDATE strike SET incident = ? WHERE n = ?"
        for incident in incidents(self.standing(device)):
            if inner := incident.inner():
                db.executemany(update, [(incident.strikes[0].incident, each.n) for each in incident.strikes])
                db.executemany("UPDATE strike SET revoked = 'spare' WHERE n = ?", [(each.n,) for each in inner])
        beyond = (
            "device = :device AND n NOT IN "
            "(SELECT n FROM strike WHERE device = :device ORDER BY revoked = '' DESC, n DESC LIMIT :kept)"
        )
        values = {"device": device, "kept": self._policy.strikes + _SPARE, "peers": _PEERS}
        latest = "SELECT n FROM strike WHERE device = :device ORDER BY n DESC LIMIT 1 OFFSET :peers"
        db.execute(f"DELETE FROM strike WHERE {beyond} AND (settled OR n <= ({latest}))", values)
        db.execute(f"UPDATE strike SET revoked = 'spare' WHERE {beyond} AND revoked = ''", values)

    def _insert(self, report: EventReport, step: int, **more: object) -> None:
        event, now, text = report.event, report.now, report.event.to_json()
        self.written += len(text)
        more |= {name: getattr(event, name) for name in ("run", "rank", "rule", "checkpoint", "value")}
        more |= {name: getattr(report, name) for name in ("device", "job", "vouched")}
        more |= {"time": event.time, "received": now, "due": now + self._policy.settle_seconds}
        self._store.insert("strike", step=step, event=text, incident=event.incident or event.id, **more)

    def standing(self, device: int) -> list[Strike]:
        """Returns the strikes of a device that count or may count yet, the earliest first."""
        return self._select("device = ?", (device,))

    def event(self, number: int) -> str:
        """Returns the first event of a strike, in JSON."""
        return str(self._store.db.execute("SELECT event FROM strike WHERE n = ?", (number,)).fetchone()[0])

    def of(self, strikes: Iterable[Strike], now: float) -> StrikeCount:
        """Counts strikes of one device as of `now`."""
        since = max(now - self._policy.strike_memory_seconds, self._store.number("ignore_before"))
        return count((each for each in strikes if each.time >= since), self._policy, now)

    def of_all(self, now: float) -> dict[int, StrikeCount]:
        """Returns the strikes that count at `now`, by number of the device; those without any are left out."""
        grouped = itertools.groupby(self._select("TRUE", ()), lambda strike: strike.device)
        found = {number: self.of(strikes, now) for number, strikes in grouped}
        return {number: each for number, each in found.items() if each.strikes or each.score}

    def _select(self, where: str, values: tuple[object, ...]) -> list[Strike]:
        """Reads what may count: not revoked, not forgiven, and not of a step in which others were at fault too."""
        return [Strike(*row) for row in self._store.db.execute(_STRIKES.format(where), values)]

    def suspects(self, now: float) -> list[tuple[str, str]]:
        """Returns host and name of the devices with a strike that was not transient, the latest last.

        Where replays could not tell, one incident is no suspicion.
        """
        several = {number for number, found in self.of_all(now).items() if found.strikes > 1}
        rows = self._store.db.execute(
            f"SELECT host, name, device.n, min({_UNCLEAR} AND rule NOT IN ('probe', 'audit', 'vendor')) "
            "FROM strike JOIN device ON device.n = device WHERE revoked = '' AND verdict <> 'transient' "
            "AND time > max(?, cleared) AND time >= ? GROUP BY device.n ORDER BY max(time), max(strike.n)",
            (now - self._policy.window_seconds, self._store.number("ignore_before")),
        )
        return [(host, name) for host, name, number, is_unclear in rows if not is_unclear or number in several]

    def settle(self, now: float) -> list[int]:
        """Lets the strikes count that have waited long enough; returns their devices."""
        db = self._store.db
        latest = now + self._policy.settle_seconds  # of a later one the clock was set back since
        db.execute("UPDATE strike SET due = ? WHERE settled = 0 AND due > ?", (latest, latest))
        rows = db.execute("UPDATE strike SET settled = 1 WHERE settled = 0 AND due <= ? RETURNING device", (now,))
        return list(dict.fromkeys(int(row[0]) for row in rows.fetchall()))

    def is_software(self, job: str, step: int, host: str) -> bool:
        """Returns whether software or data was found to be the cause in this step on this host."""
        return self._store.has("software WHERE job = ? AND step = ? AND host = ?", job, step, host)

    def _blame(self, report: EventReport, hosts: Collection[str] = (), mark: str = "software") -> tuple[int, ...]:
        """Revokes the strikes of a step, present and future, that no replay confirmed; returns their devices."""
        event, job, step = report.event, report.job, report.event.step
        if step <= 0:  # the step is not known
            return ()
        revoked: list[int] = []
        query = "INSERT OR IGNORE INTO software (job, step, host, received) VALUES (?, ?, ?, ?)"
        where = f"job = ? AND step = ? AND {_HARDWARE_OF} AND verdict NOT IN ('transient', 'persistent')"
        for host in {event.host, *hosts}:
            if mark == "software":
                self._store.db.execute(query, (job, step, host, report.now))
            revoked += self._revoke(mark, where, (job, step, host))
        return tuple(revoked)

    def _revoke(self, why: str, where: str, values: tuple[object, ...]) -> tuple[int, ...]:
        """Revokes the strikes of `where`; returns the device of each."""
        query = f"UPDATE strike SET revoked = ? WHERE {where} AND revoked = '' RETURNING device"
        return tuple(number for (number,) in self._store.db.execute(query, (why, *values)).fetchall())

    def _repeated_on(self, report: EventReport) -> tuple[list[str], str]:
        """Returns the hosts on which other attempts of the job saw the same value there, and how to mark the strikes.

        If the nodes of the job are unknown, other hosts count only if they are many.
        """
        event, vouched = report.event, report.vouched
        if not report.step:
            return [], ""
        text = repr((report.job, report.step, event.checkpoint, event.value))
        fact = hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).digest()
        query = "INSERT OR IGNORE INTO sighting (fact, host, run, vouched, received) VALUES (?, ?, ?, ?, ?)"
        self._store.db.execute(query, (fact, event.host, event.run, vouched, report.now))
        query = "SELECT DISTINCT host, vouched FROM sighting WHERE fact = ? AND run <> ?"
        found = dict(self._store.db.execute(query, (fact, event.run)).fetchall())
        heeded = [host for host, theirs in found.items() if host == event.host or min(vouched, theirs) > 0]
        others = [host for host, theirs in found.items() if min(vouched, theirs) >= 0]
        if not heeded and len({event.host, *others}) >= self._policy.many_devices:
            return others, "withheld"
        return heeded, "software"

    def _has_moved(self, report: EventReport) -> int | None:
        """Returns the rank under which the device alone was at fault in the same step of another attempt, or None.

        A fault that moves with the device to a different rank is the device's: data stay with the rank.
        """
        event, where = report.event, f"job = ? AND step = ? AND {_heeded(report)}"
        values = report.job, report.step, event.host
        if self._store.has(f"strike WHERE {where} AND device <> ?", *values, report.device):
            return None
        query = f"SELECT rank FROM strike WHERE {where} AND run <> ? ORDER BY n"
        ranks = [rank for (rank,) in self._store.db.execute(query, (*values, event.run))]
        return ranks[0] if ranks and -1 not in ranks and event.rank not in (-1, *ranks) else None

    def _revoke_many(self, report: EventReport) -> Counted:
        """Revokes the strikes of many devices or nodes at once, with this new one; returns the facts about that."""
        found = self._many(report, report.event.time)
        if found is None:
            return Counted()
        known = self._store.has(f"strike WHERE {found.where} AND revoked = ?", *found.values, found.mark)
        revoked = self._revoke(found.mark, f"{found.where} AND verdict = ''", found.values)
        if known:
            return Counted(finding="known", revoked=revoked)
        # For the sentence, and too dear for every member of a large burst.
        query = f"SELECT count(DISTINCT {found.each}) FROM strike JOIN device ON device.n = device WHERE {found.where}"
        many = self._store.db.execute(query, found.values).fetchone()[0]
        return Counted(finding=found.mark, of=found.of, many=many, revoked=revoked)

    def _many(self, report: EventReport, time: float) -> _Many | None:
        """Returns the strikes that have one cause with that of a report; None where these are few.

        The same step of the same run is the same moment, whatever the clocks of the hosts show. Ranks that did not find
        one name are of one job all the same; unrelated jobs on a node are in different steps.
        """
        event, job, step = report.event, report.job, report.step
        of_job = _Many(f"job {job}", f"job = ? AND {_heeded(report)}", (job, event.host))
        of_node = _Many(f"node {event.host}", f"step = ? AND {_HARDWARE_OF}", (step, event.host))
        of_nodes = _Many(f"job {job}", "job = ? AND vouched >= 0", (job,), "withheld")
        for each in (of_job, of_nodes) if report.vouched == _UNKNOWN else (of_job,):
            same_step = each._replace(
                where=f"{each.where} AND step = ? AND run = ?", values=(*each.values, event.step, event.run)
            )
            if step and self._are_many(same_step):
                return same_step
            if found := self._within(each, time):
                return found
        return self._within(of_node, time) if step else None

    def _within(self, many: _Many, time: float) -> _Many | None:
        """Returns the strikes in a burst around `time`; None when there is no burst."""
        span, between = self._policy.burst_seconds, f"{many.where} AND time BETWEEN ? AND ?"
        around = many._replace(where=between, values=(*many.values, time - span, time + span))
        if not self._are_many(around):  # nearly always
            return None
        query = f"SELECT DISTINCT time FROM strike WHERE {between} ORDER BY time"
        starts = self._store.db.execute(query, (*many.values, time - span, time))  # of a flood mostly the first is one
        windows = (around._replace(values=(*many.values, start, start + span)) for (start,) in starts)
        return next(filter(self._are_many, windows), None)

    def _are_many(self, many: _Many) -> bool:
        most, join = self._policy.many_devices, "JOIN device ON device.n = device" if many.each == "host" else ""
        query = f"SELECT DISTINCT {many.each} FROM strike {join} WHERE {many.where} LIMIT ?"
        return len(self._store.db.execute(query, (*many.values, most)).fetchall()) == most

    def _confirm(self, number: int, verdict: str) -> None:
        """Gives a strike its verdict; `software` about the very same step of a device outweighs `transient`."""
        rank = "CASE {} WHEN 'persistent' THEN 3 WHEN 'software' THEN 2 WHEN 'transient' THEN 1 ELSE 0 END"
        self._store.db.execute(
            "UPDATE strike SET verdict = :new, revoked = CASE :new WHEN 'software' THEN 'software' ELSE '' END "
            f"WHERE n = :number AND {rank.format(':new')} > {rank.format('verdict')}",
            {"new": verdict, "number": number},
        )

    def _step(self, event: Event, device: int) -> int:
        """Returns a negative number for an unknown step, equal for anomalies that are close in time."""
        query = "SELECT step, time FROM strike WHERE device = ? AND run = ? AND step < 0 ORDER BY step LIMIT 1"
        step, time = self._store.db.execute(query, (device, event.run)).fetchone() or (0, -math.inf)
        return int(step) if abs(event.time - time) <= _COOLDOWN_SECONDS else int(step) - 1


def _heeded(report: EventReport) -> str:
    """Returns a condition for the strikes that speak for a report: of its host `?`, and of others of its job."""
    return f"({_HARDWARE_OF} OR vouched > 0)" if report.vouched > 0 else _HARDWARE_OF
