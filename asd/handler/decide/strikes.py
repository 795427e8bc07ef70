"""The strike book: which device was at fault in which steps, and which of these strikes count.

The only place that counts strikes. The fault handler decides by it; exporter and report show what it says.

| event | what it does to the strikes |
|---|---|
| first-level anomaly | a strike of its step, which waits for others of its job |
| the same by many devices of one job at once | software or data: the strikes are revoked |
| the same step of many devices of one node at once, in any runs | software or data: the strikes are revoked |
| the same step, checkpoint and value in another attempt of the job | software or data: those there are revoked |
| ... by the same device alone, under another rank | the strike stays |
| replay: persistent or transient | the strike of that step counts at once |
| replay: software | the strikes of that step on its host are revoked |
| stress test: computed wrongly | a strike that counts at once |
| the device was given back, and not by the handler itself | its strikes up to then count no more |
| the handler gave it back after a time without a fault | its strikes count on |

What hosts say of a job counts for devices of other hosts only where the job is known to run on both, by somebody else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from asd.event import Event
from asd.handler.db.cases import by_people
from asd.handler.db.store import Store
from asd.handler.decide.hardware import JUDGED, Hardware
from asd.handler.identity import job_of, moment, names_device, whole_event
from asd.handler.policy import SKEW_SECONDS, Policy
from asd.verdict import Level

_COOLDOWN_SECONDS = 300.0  # anomalies whose step is not known are one strike within it, as in the vendor's check
_SPARE = 50  # strikes of a device that are kept beyond those that are needed
_HARDWARE_OF = "device IN (SELECT n FROM device WHERE host = ?)"
_HARDWARE = "('transient', 'persistent')"


class StrikeCount(NamedTuple):
    """How many strikes of a device count.

    Attributes:
        counting: Strikes in the window that are settled or confirmed, and not revoked.
        waiting: Strikes in the window that may still turn out to be one of many.
        score: What those that count come to, with the earlier ones, see `Policy.weight`.
    """

    counting: int
    waiting: int
    score: float = 0.0

    @property
    def strikes(self) -> int:
        """The number that every program shows."""
        return self.counting + self.waiting

    def is_enough(self, strikes: int, *, waiting: bool = False) -> bool:
        """Whether a device is taken out that may have less than so many strikes.

        Args:
            strikes: Of the policy.
            waiting: Whether those that wait count too.
        """
        more = self.waiting if waiting else 0
        return max(self.counting, self.score) + more >= strikes


class Counted(NamedTuple):
    """What an event did to the strikes.

    Attributes:
        device: Number of its device; 0 when it names none.
        new: Whether there is a strike more, revoked or not.
        software: Whether its step, or the burst that it belongs to, was known to be software or data before.
        repeated: Whether another attempt of the job had the same value, so that the strikes of the step are revoked.
        moved: The rank under which this device, and no other, had the same value before; None when it had not.
        burst: How many devices were found to be at fault at once, so that their strikes are revoked; else 0.
        of: What these devices have in common, `job NAME` or `node NAME`.
        revoked: The devices of the strikes that it had revoked, one for each strike; without that of a replay itself.
    """

    device: int = 0
    new: bool = False
    software: bool = False
    repeated: bool = False
    moved: int | None = None
    burst: int = 0
    of: str = ""
    revoked: tuple[int, ...] = ()


class Strikes:
    """Everything about strikes that the store holds. Used within a transaction, except for `of`.

    Args:
        store: Holds it.
        policy: The numbers.
        hosts_of: On which hosts a job runs, by who knows; None where all who are heard are believed about every job.

    Attributes:
        hardware: The devices, by number.
        written: Characters that were written since this was set to 0.
    """

    def __init__(self, store: Store, policy: Policy, hosts_of: Callable[[str], Collection[str]] | None = None) -> None:
        self._store = store
        self._policy = policy
        self._hosts_of = hosts_of
        self.hardware = Hardware(store)
        self.written = 0

    def count(self, event: Event, now: float) -> Counted:
        """Takes in any event that is `prepared`; what says nothing about strikes changes none."""
        if event.kind == "anomaly" and event.level is Level.ERROR:
            return self._anomaly(event, now) if names_device(event) else Counted()
        if event.kind == "replay" and event.verdict == "software":
            return self._software(event, now)
        if not names_device(event):
            return Counted()
        if event.kind in JUDGED and event.verdict:
            device = self.hardware.heard_of(event, now)
            new = event.verdict != "undetermined" and self._add(event, device, now, event.verdict)
            if new and event.kind == "replay":
                self._revoke_burst(event, now)
            return Counted(device, new)
        if event.kind not in ("stress", "recovery"):
            return Counted()
        device = self.hardware.heard_of(event, now)
        if event.kind == "recovery" and by_people(event.reason):
            self.clear(device, min(event.time, now))
        return Counted(device)

    def is_stale(self, event: Event, now: float) -> bool:
        """Whether an event is too old to be a reason to act: from before the handler's first start, or a reset."""
        return event.time < max(self._store.number("ignore_before"), now - self._policy.stale_seconds)

    def _anomaly(self, event: Event, now: float) -> Counted:
        device, job = self.hardware.heard_of(event, now), job_of(event.run)
        repeated = self._is_repeated(event, now)
        new = self._add(event, device, now)
        software = self.is_software(job, event.step, event.host)
        if repeated and not software:
            moved = self._has_moved(event, device)
            if moved is not None and not self.is_stale(event, now):
                return Counted(device, new, moved=moved)
            return Counted(device, new, repeated=True, revoked=self._blame_software(event, now, repeated=True))
        if not new:
            return Counted(device, new, software)
        counted = self._revoke_burst(event, now)
        return counted._replace(device=device, new=new, software=software or counted.software)

    def _software(self, event: Event, now: float) -> Counted:
        device, new = 0, False
        if names_device(event):
            device = self.hardware.heard_of(event, now)
            new = self._add(event, device, now, "software")
        return Counted(device, new, revoked=self._blame_software(event, now))

    def _add(self, event: Event, device: int, now: float, verdict: str = "") -> bool:
        """Takes in an anomaly or a verdict about a step of `device`; returns whether the step is a new strike."""
        db, policy = self._store.db, self._policy
        step = self._step(event, device)
        row = db.execute(
            "SELECT n FROM strike WHERE device = ? AND run = ? AND step = ?", (device, event.run, step)
        ).fetchone()
        if row is not None:
            if verdict:
                self._confirm(row[0], verdict)
            return False
        old = event.time <= now - policy.settle_seconds - SKEW_SECONDS  # the others are in the logs already
        job = job_of(event.run)
        revoked = (
            "software" if verdict == "software" or (not verdict and self.is_software(job, step, event.host)) else ""
        )
        text = event.to_json()
        self.written += len(text)
        self._store.insert(
            "strike",
            device=device,
            run=event.run,
            job=job,
            step=step,
            time=min(event.time, now + SKEW_SECONDS),
            received=now,
            due=now if old else now + policy.settle_seconds,
            settled=0,
            verdict=verdict,
            revoked=revoked,
            event=text,
            vouched=self._is_vouched(event),
        )
        row = db.execute("UPDATE device SET strikes = strikes + 1 WHERE n = ? RETURNING strikes", (device,)).fetchone()
        if row[0] % _SPARE == 0:
            db.execute(
                "DELETE FROM strike WHERE device = :device AND n <= "
                "(SELECT n FROM strike WHERE device = :device ORDER BY n DESC LIMIT 1 OFFSET :kept)",
                {"device": device, "kept": policy.strikes + _SPARE},
            )
        return True

    def of(self, device: int, now: float) -> StrikeCount:
        """How many strikes of `device` count at `now`."""
        return self.of_all(now, device).get(device, StrikeCount(0, 0))

    def of_all(self, now: float, device: int = 0) -> dict[int, StrikeCount]:
        """How many strikes count at `now` of every device that has some, by number; or of one alone."""
        policy, which = self._policy, "device.n = :device AND" if device else ""
        rows = self._store.db.execute(
            "SELECT device.n, time, settled OR verdict <> '' FROM strike JOIN device ON device.n = device "
            f"WHERE {which} time > max(:begin, cleared) AND time >= :ignored AND revoked = ''",
            {
                "begin": now - policy.strike_memory_seconds,
                "ignored": self._store.number("ignore_before"),
                "device": device,
            },
        )
        found: dict[int, StrikeCount] = {}
        for number, time, counts in rows:
            before, age = found.get(number, StrikeCount(0, 0)), now - time
            is_recent = age < policy.window_seconds
            found[number] = StrikeCount(
                before.counting + bool(counts and is_recent),
                before.waiting + bool(is_recent and not counts),
                before.score + (policy.weight(age) if counts else 0.0),
            )
        return {number: each for number, each in found.items() if each.strikes or each.score}

    def now_there(self, device: int, now: float) -> float:
        """What the clock of the device's host shows at least, in seconds since the epoch; `now` at most.

        That it is hours behind ours makes no strike older than the others of this device.
        """
        row = self._store.db.execute("SELECT max(time) FROM strike WHERE device = ?", (device,)).fetchone()
        return now if row[0] is None else min(now, float(row[0]))

    def counting(self, device: int) -> list[Event]:
        """The first event of each strike that counts, of the last one first."""
        rows = self._store.db.execute(
            "SELECT event FROM strike JOIN device ON device.n = device WHERE device = ? AND time > cleared "
            "AND revoked = '' AND (settled OR verdict <> '') ORDER BY time DESC, strike.n DESC",
            (device,),
        )
        return [Event.from_json(text) for (text,) in rows]

    def suspects(self, now: float) -> list[str]:
        """The devices that have a strike which may not be over with its step, by name, the latest one last."""
        rows = self._store.db.execute(
            "SELECT name FROM strike JOIN device ON device.n = device WHERE revoked = '' AND verdict <> 'transient' "
            "AND time > max(?, cleared) AND time >= ? GROUP BY device.n ORDER BY max(time), max(strike.n)",
            (now - self._policy.window_seconds, self._store.number("ignore_before")),
        )
        return [name for (name,) in rows]

    def clear(self, device: int, until: float) -> None:
        """Lets no strike of `device` up to `until` count any more."""
        self._store.db.execute("UPDATE device SET cleared = max(cleared, ?) WHERE n = ?", (until, device))
        self._store.db.execute(
            "UPDATE strike SET settled = 1 WHERE device = ? AND settled = 0 AND time <= ?", (device, until)
        )

    def clear_place(self, device: int, until: float) -> None:
        """The same, where the device is known by its place alone: hardware with a serial takes its strikes along."""
        query = "SELECT 1 FROM device WHERE n = ? AND serial = ''"
        if self._store.db.execute(query, (device,)).fetchone() is not None:
            self.clear(device, until)

    def settle(self, now: float) -> list[int]:
        """Lets the strikes count that have waited long enough; returns their devices."""
        db = self._store.db
        latest = now + self._policy.settle_seconds  # of a later one the clock was set back since
        db.execute("UPDATE strike SET due = ? WHERE settled = 0 AND due > ?", (latest, latest))
        rows = db.execute("UPDATE strike SET settled = 1 WHERE settled = 0 AND due <= ? RETURNING device", (now,))
        return list(dict.fromkeys(int(row[0]) for row in rows.fetchall()))

    def is_software(self, job: str, step: int, host: str) -> bool:
        """Whether software or data was found to be the cause in this step on this host."""
        query = "SELECT 1 FROM software WHERE job = ? AND step = ? AND host = ?"
        return self._store.db.execute(query, (job, step, host)).fetchone() is not None

    def _blame_software(self, event: Event, now: float, *, repeated: bool = False) -> tuple[int, ...]:
        """Revokes every strike of a step on a host that no replay confirmed, and those to come: the devices of each."""
        job, step, host = job_of(event.run), event.step, event.host
        if step <= 0:  # the step is not known
            return ()
        db = self._store.db
        db.execute(
            "INSERT OR IGNORE INTO software (job, step, host, received) VALUES (?, ?, ?, ?)", (job, step, host, now)
        )
        where = (
            f"job = ? AND step = ? AND verdict NOT IN {_HARDWARE} AND device IN (SELECT n FROM device WHERE host IN "
        )
        # Where it repeats, also of the hosts that the job was on before it moved.
        seen = "(SELECT ? UNION SELECT host FROM sighting WHERE fact = ? AND vouched AND ?)"
        values = (job, step, host, _fact(event) if repeated else b"", self._is_vouched(event))
        return self._revoke("software", f"{where}{seen})", values)

    def _revoke(self, why: str, where: str, values: tuple[object, ...]) -> tuple[int, ...]:
        """Revokes the strikes of `where`; returns the device of each."""
        query = f"UPDATE strike SET revoked = ? WHERE {where} AND revoked = '' RETURNING device"
        return tuple(number for (number,) in self._store.db.execute(query, (why, *values)).fetchall())

    def _is_vouched(self, event: Event) -> bool:
        """Whether somebody else than its host knows that its job runs there."""
        return self._hosts_of is None or event.host in self._hosts_of(job_of(event.run))

    def _heeded(self, event: Event) -> tuple[str, tuple[object, ...]]:
        """Which strikes have to do with an event: those of its host, and of others where the job runs on both."""
        both = f"({_HARDWARE_OF} OR vouched)" if self._is_vouched(event) else _HARDWARE_OF
        return ("TRUE", ()) if self._hosts_of is None else (both, (event.host,))

    def _is_repeated(self, event: Event, now: float) -> bool:
        """Whether another attempt of the job saw the same value at the same checkpoint and step."""
        if not moment(event):
            return False
        db, vouched, fact = self._store.db, self._is_vouched(event), _fact(event)
        db.execute(
            "INSERT OR IGNORE INTO sighting (fact, host, run, vouched, received) VALUES (?, ?, ?, ?, ?)",
            (fact, event.host, event.run, vouched, now),
        )
        query = "SELECT 1 FROM sighting WHERE fact = ? AND run <> ? AND (host = ? OR vouched AND ?) LIMIT 1"
        return db.execute(query, (fact, event.run, event.host, vouched)).fetchone() is not None

    def _has_moved(self, event: Event, device: int) -> int | None:
        """The rank of another attempt in which `device`, and no other, was at fault in the same step; None for none.

        What comes back with the device under another rank is the device's: the data of a rank stay with the rank.
        """
        heeded, whose = self._heeded(event)
        db, where = self._store.db, f"job = ? AND step = ? AND {heeded}"
        values = (job_of(event.run), moment(event), *whose)
        if db.execute(f"SELECT 1 FROM strike WHERE {where} AND device <> ? LIMIT 1", (*values, device)).fetchone():
            return None
        rows = db.execute(f"SELECT event FROM strike WHERE {where} AND run <> ? ORDER BY n", (*values, event.run))
        ranks = [Event.from_json(text).rank for (text,) in rows]
        return ranks[0] if ranks and -1 not in ranks and event.rank not in (-1, *ranks) else None

    def _revoke_burst(self, event: Event, now: float) -> Counted:
        """Revokes the strikes of many devices at once, this new one among them; says what it knows of that."""
        time = min(event.time, now + SKEW_SECONDS)
        of, found = f"job {job_of(event.run)}", self._burst(event, time)
        if found is None:  # ranks that did not find one name are of one job all the same
            of, found = f"node {event.host}", self._same_step_on_node(event, time)
        if found is None:
            return Counted()
        where, values = found
        db = self._store.db
        known = db.execute(f"SELECT 1 FROM strike WHERE {where} AND revoked = 'burst' LIMIT 1", values).fetchone()
        revoked = self._revoke("burst", f"{where} AND verdict = ''", values)
        if known:
            return Counted(software=True, revoked=revoked)
        # For the sentence, and too dear for every member of a large burst.
        count = db.execute(f"SELECT count(DISTINCT device) FROM strike WHERE {where}", values).fetchone()[0]
        return Counted(burst=count, of=of, revoked=revoked)

    def _burst(self, event: Event, time: float) -> tuple[str, tuple[object, ...]] | None:
        """Which strikes of its job belong to a burst with this event, as a condition; None when there is none.

        The same step of the same run is the same moment, whatever the clocks of the hosts say.
        """
        heeded, whose = self._heeded(event)
        where, values = f"job = ? AND {heeded}", (job_of(event.run), *whose)
        same_step = f"{where} AND step = ? AND run = ?", (*values, event.step, event.run)
        if moment(event) and self._are_many(*same_step):
            return same_step
        return self._many_within(where, values, time)

    def _same_step_on_node(self, event: Event, time: float) -> tuple[str, tuple[object, ...]] | None:
        """Which strikes of its node, in whatever run, are a burst: jobs with nothing in common are in other steps."""
        on_node = f"step = ? AND {_HARDWARE_OF}"
        return self._many_within(on_node, (moment(event), event.host), time) if moment(event) else None

    def _many_within(self, whose: str, names: tuple[object, ...], time: float) -> tuple[str, tuple[object, ...]] | None:
        """Which strikes of `whose` belong to a burst around `time`, as a condition; None when there is none."""
        span, between = self._policy.burst_seconds, f"{whose} AND time BETWEEN ? AND ?"
        if not self._are_many(between, (*names, time - span, time + span)):  # nearly always
            return None
        starts = self._store.db.execute(
            f"SELECT DISTINCT time FROM strike WHERE {between} ORDER BY time", (*names, time - span, time)
        )
        windows = ((between, (*names, start, start + span)) for (start,) in starts)
        return next((window for window in windows if self._are_many(*window)), None)

    def _are_many(self, where: str, values: tuple[object, ...]) -> bool:
        most = self._policy.many_devices
        rows = self._store.db.execute(
            f"SELECT DISTINCT device FROM strike WHERE {where} LIMIT ?", (*values, most)
        ).fetchall()
        return len(rows) == most

    def _confirm(self, number: int, verdict: str) -> None:
        """Gives a strike its verdict; `software` about the very same step of a device outweighs `transient`."""
        rank = "CASE {} WHEN 'persistent' THEN 3 WHEN 'software' THEN 2 WHEN 'transient' THEN 1 ELSE 0 END"
        self._store.db.execute(
            "UPDATE strike SET verdict = :new, revoked = CASE :new WHEN 'software' THEN 'software' ELSE '' END "
            f"WHERE n = :number AND {rank.format(':new')} > {rank.format('verdict')}",
            {"new": verdict, "number": number},
        )

    def _step(self, event: Event, device: int) -> int:
        """The step; for anomalies whose step is not known a negative number, the same for those close to each other."""
        if moment(event):
            return event.step
        row = self._store.db.execute(
            "SELECT step, time FROM strike WHERE device = ? AND run = ? AND step < 0 ORDER BY step LIMIT 1",
            (device, event.run),
        ).fetchone()
        if row is None:
            return -1
        return int(row[0]) if abs(event.time - row[1]) <= _COOLDOWN_SECONDS else int(row[0]) - 1


def _fact(event: Event) -> bytes:
    """Returns a hash of the value of a job at a checkpoint and step."""
    text = repr((job_of(event.run), moment(event), event.checkpoint, event.value))
    return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).digest()


def prepared(event: Event) -> Event:
    """`event` as it can be kept, a stress test with its verdict: a failure at a known answer is the hardware's."""
    event = whole_event(event)
    if event.kind != "stress":
        return event
    return replace(event, verdict="persistent" if event.level is Level.ERROR else "")
