"""The tables of the fault handler's database, and how those of the version before are taken over."""

import json
import sqlite3
from typing import Any

from asd import older

VERSION = 8
OLDEST = 7  # from this version on a database is taken over

SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Every device that was ever heard of: the hardware, where its serial is known, else what sits in a place of a host.
-- tested is when its last stress test was, sound whether it passed.
CREATE TABLE device (
    n INTEGER PRIMARY KEY, host TEXT NOT NULL, name TEXT NOT NULL, rank INTEGER NOT NULL,
    last REAL NOT NULL, cleared REAL NOT NULL DEFAULT 0, strikes INTEGER NOT NULL DEFAULT 0,
    transient INTEGER NOT NULL DEFAULT 0, persistent INTEGER NOT NULL DEFAULT 0, software INTEGER NOT NULL DEFAULT 0,
    undetermined INTEGER NOT NULL DEFAULT 0, evidence TEXT NOT NULL DEFAULT '', tested REAL NOT NULL DEFAULT 0,
    sound INTEGER NOT NULL DEFAULT 0, serial TEXT NOT NULL DEFAULT '',
    UNIQUE (host, name, serial));

-- One training step in which a device was at fault. It counts when it is not revoked and either settled or confirmed.
-- revoked is software, burst, withheld, spare: others are enough, or unheard: its replay came before it. unclear is
-- whether no replay can tell whose fault it was. event is the JSON of its first event, with columns for what decides.
-- vouched is whether the job is known to run on the host, by others than the host itself: 1 yes, -1 no, 0 where its
-- hosts are not known.
CREATE TABLE strike (
    n INTEGER PRIMARY KEY, device INTEGER NOT NULL, run TEXT NOT NULL, job TEXT NOT NULL, step INTEGER NOT NULL,
    time REAL NOT NULL, received REAL NOT NULL, due REAL NOT NULL, settled INTEGER NOT NULL,
    verdict TEXT NOT NULL DEFAULT '', revoked TEXT NOT NULL DEFAULT '', unclear INTEGER NOT NULL DEFAULT 0,
    incident TEXT NOT NULL, rank INTEGER NOT NULL, rule TEXT NOT NULL, checkpoint TEXT NOT NULL,
    value REAL, event TEXT NOT NULL, vouched INTEGER NOT NULL, UNIQUE (device, run, step));
CREATE INDEX strike_time ON strike (job, time);
CREATE INDEX strike_step ON strike (job, step);
CREATE INDEX strike_due ON strike (due) WHERE settled = 0;
CREATE INDEX strike_open_time ON strike (job, time) WHERE revoked = '' AND verdict = '';
CREATE INDEX strike_open_step ON strike (job, step) WHERE revoked = '' AND verdict = '';

-- Steps of a job whose anomalies on a host come from software or data.
CREATE TABLE software (
    n INTEGER PRIMARY KEY, job TEXT NOT NULL, step INTEGER NOT NULL, host TEXT NOT NULL, received REAL NOT NULL,
    UNIQUE (job, step, host));

-- In which attempt a host saw a job's value at a checkpoint and step first.
CREATE TABLE sighting (
    n INTEGER PRIMARY KEY, fact BLOB NOT NULL, host TEXT NOT NULL, run TEXT NOT NULL, vouched INTEGER NOT NULL,
    received REAL NOT NULL, UNIQUE (fact, host));

-- Ids of the events from which something may follow.
CREATE TABLE seen (n INTEGER PRIMARY KEY, id BLOB UNIQUE NOT NULL, received REAL NOT NULL);

-- What was done about a device. The states, causes and endings are those of `asd.handler.db.cases`.
CREATE TABLE cases (
    n INTEGER PRIMARY KEY, device INTEGER NOT NULL, state TEXT NOT NULL, opened REAL NOT NULL, closed REAL,
    cause TEXT NOT NULL, reason TEXT NOT NULL, verdict TEXT NOT NULL, event TEXT NOT NULL, event_id TEXT NOT NULL,
    last_fault REAL NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, next_try REAL NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '', isolator TEXT NOT NULL DEFAULT '', ending TEXT NOT NULL DEFAULT '',
    why_released TEXT NOT NULL DEFAULT '', wants_test INTEGER NOT NULL DEFAULT 0, host_since REAL NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX cases_open ON cases (device) WHERE closed IS NULL;
CREATE INDEX cases_opened ON cases (opened);
CREATE INDEX cases_device ON cases (device);

-- Events that are to be published, and those that were. about is the event that led to the case.
CREATE TABLE outbox (
    n INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, about TEXT NOT NULL, kind TEXT NOT NULL, event TEXT NOT NULL,
    sent REAL);
CREATE INDEX outbox_unsent ON outbox (n) WHERE sent IS NULL;
"""

FLEET = """
-- Days in which a device was watched in trainings, by its hardware; a version 8 without it gets it.
CREATE TABLE IF NOT EXISTS fleet (
    n INTEGER PRIMARY KEY, host TEXT NOT NULL, device TEXT NOT NULL, serial TEXT NOT NULL, hardware TEXT NOT NULL,
    days REAL NOT NULL, UNIQUE (host, device, serial, hardware));
"""

_TEXT, _NUMBER = "TEXT NOT NULL DEFAULT ''", "INTEGER NOT NULL DEFAULT 0"
_NEW = (
    ("strike", _TEXT, ("incident", "rule", "checkpoint")),
    ("strike", _NUMBER, ("unclear", "rank")),
    ("strike", "REAL", ("value",)),
    ("cases", _TEXT, ("cause", "event_id", "ending")),
    ("cases", _NUMBER, ("wants_test",)),
    ("outbox", _TEXT, ("about", "kind")),
)


def take_over(db: sqlite3.Connection) -> None:
    """Converts the tables of version 7, within a transaction: sentences become columns."""
    for table, kind, names in _NEW:
        for name in names:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
    for number, text in db.execute("SELECT n, event FROM strike").fetchall():
        event = json.loads(text)
        data = event["data"]
        is_applied = data["kind"] == "anomaly" and data["step"] > 0 and not data["key"] and not data["refused"]
        value = None if isinstance(data["value"], str) else data["value"]
        kept = {name: data[name] for name in ("rank", "rule", "checkpoint")}
        _update(db, "strike", number, {**kept, "incident": event["id"], "value": value, "unclear": is_applied})
    for number, reason, why, text in db.execute("SELECT n, reason, why_released, event FROM cases").fetchall():
        _update(db, "cases", number, of_sentences({"reason": reason, "why_released": why, "event": text}))
    for number, text in db.execute("SELECT n, event FROM outbox").fetchall():
        data = json.loads(text)["data"]
        _update(db, "outbox", number, {"about": data["key"], "kind": data["kind"]})
    db.execute(f"PRAGMA user_version = {VERSION}")


def of_sentences(case: dict[str, Any]) -> dict[str, object]:
    """Returns what a case of version 7 did not have, as far as its sentences said it."""
    return {**older.case_fields(case["reason"], case["why_released"]), "event_id": json.loads(case["event"])["id"]}


def _update(db: sqlite3.Connection, table: str, number: int, values: dict[str, object]) -> None:
    columns = ", ".join(f"{name} = ?" for name in values)
    db.execute(f"UPDATE {table} SET {columns} WHERE n = ?", (*values.values(), number))
