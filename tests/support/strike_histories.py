"""Histories of events, and how many strikes each device has after them, the same for all that show strikes."""

import time
from dataclasses import replace
from typing import NamedTuple

from asd import Event, Level
from asd.rundir.names import event_file
from tests.support.events import event_maker, growing, moved

NOW = time.time()
USUAL = ("--strikes", "3", "--window", "480", "--many", "3")
STRICT = ("--strikes", "2", "--window", "60", "--many", "2")


class History(NamedTuple):
    """Events of one job on one host, and the strikes by device with the options USUAL and with STRICT."""

    name: str
    events: tuple[Event, ...]
    usual: dict[str, int]
    strict: dict[str, int]


made = event_maker(run="job", host="", value=growing)


def first(step=1, ago=30.0, device="Ascend:3", rank=None, **changes):
    """A first-level anomaly so many minutes ago."""
    rank = int(device[-1]) if rank is None else rank
    return made(step, device=device, rank=rank, **{"time": NOW - 60 * ago, **changes})


def second(step=1, **changes):
    return first(step, **{"level": Level.WARNING, **changes})


def told(kind, step=1, **changes):
    return first(step, **{"kind": kind, "level": Level.NORMAL, "value": 0.0, **changes})


def replay(verdict, step=1, **changes):
    return told("replay", step, verdict=verdict, **changes)


def history(name, *events, strict=None, **usual):
    """`usual` and `strict` by the number of an Ascend device, such as `d3=2`."""
    host = name.replace(" ", "-")
    mine = tuple(moved(each, host=host, run=f"{host}-{each.run}") for each in events)
    counts = [{f"Ascend:{key[1:]}": count for key, count in given.items()} for given in (usual, strict or usual)]
    return History(host, mine, *counts)


HISTORIES = [
    history("one step", first(), d3=1),
    history("three steps", first(1), first(2), first(3), d3=3),
    history("one step at three checkpoints", *(first(1, checkpoint=name) for name in "abc"), d3=1),
    history("one step told twice", first(1), first(1), d3=1),
    history("the same step of two jobs", first(1), first(1, run="other"), d3=2),
    history("no strikes", second(1), second(2), told("follower", 3, level=Level.ERROR), told("problem", 4), d3=0),
    history(
        "three steps laid on software",
        *(first(step) for step in (1, 2, 3)),
        *(replay("software", step) for step in (1, 2, 3)),
        d3=0,
    ),
    history("laid on software before it is told", replay("software", ago=31), first(), d3=0),
    history("laid on software by another rank", first(), replay("software", device="Ascend:4"), d3=0, d4=0),
    history(
        "hardware here and software there",
        first(),
        replay("transient"),
        replay("software", device="Ascend:4"),
        d3=1,
        d4=0,
    ),
    history("transient hardware", first(1), replay("transient", 1), first(2), replay("transient", 2), d3=2),
    history("a verdict whose anomaly is lost", replay("transient"), d3=1),
    history("an undetermined replay", first(), replay("undetermined"), d3=1),
    history("persistent hardware", first(), replay("persistent"), d3=1),
    history("three devices at once", *(first(1, device=f"Ascend:{n}") for n in (3, 4, 5)), d3=0, d4=0, d5=0),
    history(
        "two devices at once",
        first(1, device="Ascend:3"),
        first(1, device="Ascend:4"),
        d3=1,
        d4=1,
        strict={"d3": 0, "d4": 0},
    ),
    history(
        "given back after two strikes",
        first(1, 30),
        first(2, 29),
        told("isolation", 2, ago=25),
        told("recovery", 2, ago=20, recovered_by="person"),
        first(3, 10),
        d3=1,
    ),
    history("taken out by another", first(), told("isolation", 1, ago=25), d3=1),
    history("a window that has passed", first(1, 600), first(2, 100), first(3, 30), d3=2, strict={"d3": 1}),
    history("two ranks of one accelerator", first(1, rank=3), first(1, 20, rank=5, run="other"), d3=2),
    history(
        "the same value in another attempt",
        first(1),
        first(1, 20, run="job+2", device="Ascend:4", value=2e6 + 1),
        d3=0,
        d4=0,
    ),
    history("a value that moves with the device", first(1), first(1, 20, run="job+2", rank=5), d3=2),
    history("a passed stress test", first(1), first(2), told("stress", 0, ago=20), first(3, 10), d3=3),
    history("a failed stress test", told("stress", 0, level=Level.ERROR), d3=1),
    history("no step but close together", *(first(0, 30 + ago, key=f"{ago}") for ago in (0, 1, 2)), d3=1),
    history("no step and far apart", *(first(0, 30 + ago, key=f"{ago}") for ago in (0, 6, 12)), d3=3),
    history("a clock that is ahead", first(1, ago=-120), first(2, ago=-120), d3=2),
]

NAMELESS = History("nobody", (first(1, device="unknown", rank=0, host="nobody"),), {"unknown": 0}, {"unknown": 0})
ALL = (*HISTORIES, NAMELESS)


def expected(options):
    """Strikes by host and device."""
    which = "strict" if options == STRICT else "usual"
    return {(each.name, device): count for each in ALL for device, count in getattr(each, which).items()}


def device_of(labels):
    """The same from the labels of a series."""
    host, number = labels["node"], labels["id"]
    return host, "unknown" if host == NAMELESS.name else f"Ascend:{number}"


def write(run_dir, events):
    """Writes events as the ranks would: each into the log of its rank."""
    run_dir.mkdir(parents=True, exist_ok=True)
    for event in events:
        with event_file(run_dir, event.rank).open("a") as file:
            file.write(event.to_json() + "\n")


def everything():
    """As if told just now: between the import of this file and a test other tests may take an hour."""
    late = time.time() - NOW
    return [replace(event, time=event.time + late) for told_of in ALL for event in told_of.events]
