"""The tables of the fault handler's database. An event in them is its JSON."""

from __future__ import annotations

VERSION = 7

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
-- vouched is whether the job is known to run on the host, by others than the host itself.
CREATE TABLE strike (
    n INTEGER PRIMARY KEY, device INTEGER NOT NULL, run TEXT NOT NULL, job TEXT NOT NULL, step INTEGER NOT NULL,
    time REAL NOT NULL, received REAL NOT NULL, due REAL NOT NULL, settled INTEGER NOT NULL,
    verdict TEXT NOT NULL DEFAULT '', revoked TEXT NOT NULL DEFAULT '', event TEXT NOT NULL,
    vouched INTEGER NOT NULL, UNIQUE (device, run, step));
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

-- What was done about a device. Open are isolating, others, isolated, releasing, dry, closed are released, others,
-- dropped.
CREATE TABLE cases (
    n INTEGER PRIMARY KEY, device INTEGER NOT NULL, state TEXT NOT NULL, opened REAL NOT NULL, closed REAL,
    reason TEXT NOT NULL, verdict TEXT NOT NULL, event TEXT NOT NULL, last_fault REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, next_try REAL NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '',
    isolator TEXT NOT NULL DEFAULT '', why_released TEXT NOT NULL DEFAULT '', host_since REAL NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX cases_open ON cases (device) WHERE closed IS NULL;
CREATE INDEX cases_opened ON cases (opened);
CREATE INDEX cases_device ON cases (device);

-- Events that are to be published, and those that were.
CREATE TABLE outbox (n INTEGER PRIMARY KEY, id TEXT UNIQUE NOT NULL, event TEXT NOT NULL, sent REAL);
CREATE INDEX outbox_unsent ON outbox (n) WHERE sent IS NULL;
"""
