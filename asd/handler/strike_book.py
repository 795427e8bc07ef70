"""The strike book: which device was at fault in which steps, and which of these strikes count.

The same rules as `asd.strikes`, which it takes its numbers from, and on top of them the ones that need to know about
other devices: a strike may be confirmed by a replay, or revoked because software or data was the cause.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from asd.event import Event
from asd.handler.identity import job_of
from asd.handler.packing import pack, unpack
from asd.handler.policy import Policy
from asd.handler.store import Store
from asd.isolator import Device
from asd.strikes import COOLDOWN_SECONDS, moment

__all__ = ["Standing", "StrikeBook"]

_SPARE = 5  # strikes of a device that are kept beyond those that are needed
_MOST_CACHED = 20_000
_HARDWARE = "('transient', 'persistent')"


class Standing(NamedTuple):
    """How many strikes of a device count.

    Attributes:
        counting: Strikes in the window that are settled or confirmed, and not revoked.
        waiting: Strikes in the window that may still turn out to be one of many.
    """

    counting: int
    waiting: int


class StrikeBook:
    """Everything about strikes that the store holds. Used within a transaction, except for `standing`.

    Attributes:
        ignore_before: What happened earlier, in seconds since the epoch, is no reason to act; as of `begin`.
    """

    def __init__(self, store: Store, policy: Policy) -> None:
        self._store = store
        self._policy = policy
        self._numbers: dict[tuple[str, str, int], int] = {}
        self.begin()

    def begin(self) -> None:
        """To be called when a transaction begins: another process may have reset the circuit breaker."""
        self.ignore_before = self._store.number("ignore_before")

    def forget_cache(self) -> None:
        """To be called when a transaction was rolled back, or rows were removed."""
        self._numbers.clear()

    def device(self, host: str, device: str, rank: int, now: float) -> int:
        """The number of a device, which is new if it has to be."""
        key = self._store.device_key(host, device, rank)
        number = self._numbers.get(key)
        if number is None:
            row = self._store.db.execute(
                "INSERT INTO device (host, name, shared_rank, rank, last) VALUES (?, ?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET last = last RETURNING n",
                (*key, rank, now),
            ).fetchone()
            if len(self._numbers) >= _MOST_CACHED:
                self._numbers.clear()
            number = self._numbers[key] = int(row[0])
        return number

    def known(self) -> int:
        """How many devices were heard of."""
        return int(self._store.db.execute("SELECT count(*) FROM device").fetchone()[0])

    def named(self, number: int) -> Device:
        """The device of a number."""
        return Device(*self._store.db.execute("SELECT host, name, rank FROM device WHERE n = ?", (number,)).fetchone())

    def add(self, event: Event, device: int, now: float, verdict: str = "") -> bool:
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
        time = min(event.time, now + policy.skew_seconds)
        old = event.time <= now - policy.settle_seconds - policy.skew_seconds  # the others are in the logs already
        job = job_of(event.run)
        revoked = "software" if verdict == "software" or (not verdict and self.is_software(job, step)) else ""
        db.execute(
            "INSERT INTO strike (device, run, job, step, time, received, due, settled, verdict, revoked, event) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)",
            (device, event.run, job, step, time, now, now if old else now + policy.settle_seconds, verdict, revoked,
             pack(event)),
        )  # fmt: skip
        row = db.execute("UPDATE device SET strikes = strikes + 1 WHERE n = ? RETURNING strikes", (device,)).fetchone()
        if row[0] % _SPARE == 0:
            db.execute(
                "DELETE FROM strike WHERE device = ?1 AND n <= "
                "(SELECT n FROM strike WHERE device = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?2)",
                (device, policy.strikes + _SPARE),
            )
        return True

    def standing(self, device: int, now: float) -> Standing:
        """How many strikes of `device` count at `now`."""
        row = self._store.db.execute(
            "SELECT coalesce(sum(settled OR verdict <> ''), 0), count(*) FROM strike WHERE device = ?1 AND time > ?2 "
            "AND revoked = '' AND time >= ?3 AND time > (SELECT cleared FROM device WHERE n = ?1)",
            (device, now - self._policy.window_seconds, self.ignore_before),
        ).fetchone()
        return Standing(int(row[0]), int(row[1]) - int(row[0]))

    def now_there(self, device: int, now: float) -> float:
        """What the clock of the device's host shows at least, in seconds since the epoch; `now` at most.

        Strikes of one device bear the times of one clock. That it is hours behind ours makes none of them older than
        they are to each other.
        """
        row = self._store.db.execute("SELECT max(time) FROM strike WHERE device = ?", (device,)).fetchone()
        return now if row[0] is None else min(now, float(row[0]))

    def last_counting(self, device: int) -> Event | None:
        """The first event of the last strike that counts."""
        row = self._store.db.execute(
            "SELECT event FROM strike WHERE device = ? AND revoked = '' AND (settled OR verdict <> '') "
            "ORDER BY time DESC, n DESC LIMIT 1",
            (device,),
        ).fetchone()
        return unpack(row[0]) if row else None

    def clear(self, device: int, until: float) -> None:
        """Lets no strike of `device` up to `until` count any more."""
        self._store.db.execute("UPDATE device SET cleared = max(cleared, ?) WHERE n = ?", (until, device))
        self._store.db.execute(
            "UPDATE strike SET settled = 1 WHERE device = ? AND settled = 0 AND time <= ?", (device, until)
        )

    def settle(self, now: float) -> list[int]:
        """Lets the strikes count that have waited long enough; returns their devices."""
        db = self._store.db
        latest = now + self._policy.settle_seconds  # of a later one the clock was set back since
        db.execute("UPDATE strike SET due = ?1 WHERE settled = 0 AND due > ?1", (latest,))
        rows = db.execute("SELECT DISTINCT device FROM strike WHERE settled = 0 AND due <= ?", (now,)).fetchall()
        if rows:
            db.execute("UPDATE strike SET settled = 1 WHERE settled = 0 AND due <= ?", (now,))
        return [int(row[0]) for row in rows]

    def next_due(self) -> float | None:
        """When the next strike has waited long enough that may take its device out; None when there is none."""
        row = self._store.db.execute(
            "SELECT min(due) FROM strike WHERE settled = 0 AND revoked = '' "
            "AND device NOT IN (SELECT device FROM cases WHERE closed IS NULL) "
            "AND (SELECT count(*) FROM strike AS other WHERE other.device = strike.device AND revoked = '') >= ?",
            (self._policy.strikes,),
        ).fetchone()
        return None if row[0] is None else float(row[0])

    def is_software(self, job: str, step: int) -> bool:
        """Whether software or data was found to be the cause in this step."""
        return (
            self._store.db.execute("SELECT 1 FROM software WHERE job = ? AND step = ?", (job, step)).fetchone()
            is not None
        )

    def blame_software(self, job: str, step: int, now: float) -> int:
        """Revokes every strike of a step that no replay confirmed, and those to come; returns how many were."""
        if step <= 0:  # the step is not known
            return 0
        db = self._store.db
        db.execute("INSERT OR IGNORE INTO software VALUES (?, ?, ?)", (job, step, now))
        return db.execute(
            f"UPDATE strike SET revoked = 'software' WHERE job = ? AND step = ? AND revoked = '' "
            f"AND verdict NOT IN {_HARDWARE}",
            (job, step),
        ).rowcount

    def is_repeated(self, event: Event, now: float) -> bool:
        """Whether another attempt of the job saw the same value at the same checkpoint and step."""
        if not moment(event):
            return False
        text = repr((job_of(event.run), moment(event), event.checkpoint, event.value))
        fact = hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).digest()
        db = self._store.db
        row = db.execute("SELECT run FROM sighting WHERE fact = ?", (fact,)).fetchone()
        if row is None:
            db.execute("INSERT INTO sighting (fact, run, received) VALUES (?, ?, ?)", (fact, event.run, now))
        return row is not None and row[0] != event.run

    def has_moved(self, event: Event, device: int) -> int | None:
        """The rank of another attempt in which `device`, and no other, was at fault in the same step; None for none.

        What comes back with the device under another rank is the device's: the data of a rank stay with the rank.
        """
        db, where = self._store.db, "job = ? AND step = ?"
        values = (job_of(event.run), moment(event))
        if db.execute(f"SELECT 1 FROM strike WHERE {where} AND device <> ? LIMIT 1", (*values, device)).fetchone():
            return None
        rows = db.execute(f"SELECT event FROM strike WHERE {where} AND run <> ? ORDER BY n", (*values, event.run))
        ranks = [unpack(text).rank for (text,) in rows]
        return ranks[0] if ranks and -1 not in ranks and event.rank not in (-1, *ranks) else None

    def revoke_burst(self, event: Event, now: float) -> tuple[int, bool]:
        """Revokes the strikes of many devices of one job at once, this new one among them.

        Returns:
            How many devices were seen at once, 0 when there are not many; and whether they are told of for the first
            time.
        """
        found = self._burst(event, min(event.time, now + self._policy.skew_seconds))
        if found is None:
            return 0, False
        where, values = found
        db = self._store.db
        known = db.execute(f"SELECT 1 FROM strike WHERE {where} AND revoked = 'burst' LIMIT 1", values).fetchone()
        devices = self._policy.many_devices
        if known is None:  # counting is for the sentence, and too dear for every member of a large burst
            devices = db.execute(f"SELECT count(DISTINCT device) FROM strike WHERE {where}", values).fetchone()[0]
        db.execute(f"UPDATE strike SET revoked = 'burst' WHERE {where} AND revoked = '' AND verdict = ''", values)
        return int(devices), known is None

    def _burst(self, event: Event, time: float) -> tuple[str, tuple[object, ...]] | None:
        """Which strikes belong to a burst with this event, as a condition; None when there is none.

        The same step of the same run is the same moment, whatever the clocks of the hosts say.
        """
        job, span = job_of(event.run), self._policy.burst_seconds
        if moment(event) and self._are_many("job = ? AND step = ? AND run = ?", (job, event.step, event.run)):
            return "job = ? AND step = ? AND run = ?", (job, event.step, event.run)
        between = "job = ? AND time BETWEEN ? AND ?"
        if not self._are_many(between, (job, time - span, time + span)):
            return None
        for start in (time - span, time):
            if self._are_many(between, (job, start, start + span)):
                return between, (job, start, start + span)
        rows = self._store.db.execute(
            f"SELECT time, device FROM strike WHERE {between} ORDER BY time", (job, time - span, time + span)
        ).fetchall()  # of few devices, else one of the windows above had many
        for start in (row[0] for row in rows if row[0] < time):
            if len({device for when, device in rows if start <= when <= start + span}) >= self._policy.many_devices:
                return between, (job, start, start + span)
        return None

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
            "UPDATE strike SET verdict = ?1, revoked = CASE ?1 WHEN 'software' THEN 'software' ELSE '' END "
            f"WHERE n = ?2 AND {rank.format('?1')} > {rank.format('verdict')}",
            (verdict, number),
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
        return int(row[0]) if abs(event.time - row[1]) <= COOLDOWN_SECONDS else int(row[0]) - 1
