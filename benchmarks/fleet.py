"""What the two policies make of a simulated fleet: healthy devices with upsets now and then, and bad ones.

    python benchmarks/fleet.py --json benchmarks/results/fleet.json

A healthy device has a first-level alarm that no fault explains so many times a year, at random: an upset by radiation,
or a false alarm. A bad one has one so many times a month. The events go through the handler,
without its circuit breaker, which would hide how many are accused. Told is how many healthy devices
are taken out in 10,000 days of devices, and after how many days and alarms a bad one is.
"""

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _measured import write
from _wilson import wilson

from asd.event import Event
from asd.handler import Decision, FaultHandler, NoIsolator, Policy, Store
from asd.origin import Origin
from asd.verdict import Level

DAY = 86400.0
DEVICES, BAD, DAYS = 200, 20, 365
A_YEAR = (0.1, 1.0, 4.0, 12.0)
"""Alarms of a healthy device."""
A_MONTH = (60.0, 30.0, 8.0, 4.0, 2.0)
"""Alarms of a bad one."""
_MOMENT = 1e-3  # seconds


def alarms(rate: float, devices: int, days: int, seed: int) -> list[Event]:
    """Those of devices that have `rate` of them a day each, in jobs of their own."""
    random = np.random.default_rng(seed)
    found = []
    for device in range(devices):
        for time in np.sort(random.uniform(0, days * DAY, random.poisson(rate * days))):
            found.append(
                Event(
                    origin=Origin(f"job{device}", 0, f"node{device}", "Ascend:0"),
                    step=1 + int(time),
                    checkpoint="a",
                    value=float(random.uniform(1e6, 1e9)),
                    limits=(1e6,),
                    level=Level.ERROR,
                    kind="anomaly",
                    rule="adaptive",
                    feature="l2",
                    reason="simulated",
                    refused=True,
                    time=1.7e9 + float(time),
                )
            )
    return found


class _Clock:
    """Shows the time of the event that is being handled."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def simulate(events: Sequence[Event], policy: Policy) -> dict[str, float]:
    """Runs `events` through `policy`; returns when the device of each host was isolated, where it was."""
    ordered = sorted({event.id: event for event in events}.values(), key=lambda event: event.time)
    clock, store = _Clock(), Store(None)
    handler = FaultHandler(store, policy, NoIsolator(store), lambda _event: None, clock, from_beginning=True)
    decisions: list[Decision] = []
    try:
        for event in ordered:
            decisions += _tick_until(handler, clock, event.time)
            decisions.append(handler.handle(event))
        decisions += _tick_until(handler, clock, clock.now + policy.settle_seconds + 2 * _MOMENT)
    finally:
        handler.close()
    found: dict[str, float] = {}
    for each in decisions:
        if each.action == "isolated" and each.device is not None:
            found.setdefault(each.device.host, each.time)
    return found


def _tick_until(handler: FaultHandler, clock: _Clock, until: float) -> list[Decision]:
    """Lets the time pass, with a stop wherever a strike has waited long enough; what is at `until` comes first."""
    decisions: list[Decision] = []
    query = "SELECT min(due) FROM strike WHERE settled = 0"
    while (due := handler.store.db.execute(query).fetchone()[0]) is not None and due < until:
        clock.now = max(clock.now, due)
        decisions += handler.tick()
    clock.now = max(clock.now, until - _MOMENT)
    decisions += handler.tick()
    clock.now = max(clock.now, until)
    return decisions


RULES = {"suspicion": 30 * DAY, "strikes": 0.01 * DAY}  # half-lives; by the second a strike is forgotten


def policy_of(rule: str) -> Policy:
    return Policy(half_life_seconds=RULES[rule], max_devices=1_000_000, max_percent=100.0, release_after_seconds=0.0)


def healthy(rule: str, rate: float) -> dict[str, Any]:
    """How many healthy devices are taken out."""
    events = alarms(rate / 365, DEVICES, DAYS, seed=1)
    out = simulate(events, policy_of(rule))
    days = DEVICES * DAYS
    low, high = wilson(len(out), DEVICES)
    return {
        "policy": rule,
        "alarms_a_year": rate,
        "device_days": days,
        "alarms": len(events),
        "taken_out": len(out),
        "in_10000_device_days": len(out) / days * 10_000,
        "interval": [share * DEVICES / days * 10_000 for share in (low, high)],
    }


def bad(rule: str, rate: float) -> dict[str, Any]:
    """When bad devices are."""
    events = alarms(rate / 30, BAD, DAYS, seed=2)
    times: dict[str, list[float]] = {}
    for event in events:
        times.setdefault(event.host, []).append(event.time)
    out = simulate(events, policy_of(rule))
    days = [(when - 1.7e9) / DAY for when in out.values()]
    counts = [sum(time <= when for time in times[host]) for host, when in out.items()]
    return {
        "policy": rule,
        "alarms_a_month": rate,
        "devices": BAD,
        "taken_out_within_a_year": len(out),
        "median_days": statistics.median(days) if days else None,
        "median_alarms": statistics.median(counts) if counts else None,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints both tables and, if asked, writes them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    options = parser.parse_args(arguments)
    report: dict[str, Any] = {"benchmark": "fleet", "healthy": [], "bad": []}
    for rule in RULES:
        for rate in A_YEAR:
            row = healthy(rule, rate)
            report["healthy"].append(row)
            low, high = row["interval"]
            print(
                f"  {rule:<9} healthy, {rate:>4g} alarms a year: {row['taken_out']:>3} of {DEVICES} taken out, "
                f"{row['in_10000_device_days']:.2f} in 10,000 device-days ({low:.2f} to {high:.2f})",
                flush=True,
            )
        for rate in A_MONTH:
            row = bad(rule, rate)
            report["bad"].append(row)
            print(
                f"  {rule:<9} bad, {rate:>4g} alarms a month: {row['taken_out_within_a_year']:>3} of {BAD} taken out, "
                f"after {row['median_days'] or 0:.1f} days and {row['median_alarms'] or 0:g} alarms (medians)",
                flush=True,
            )
    if options.json is not None:
        write(options.json, report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
