"""What publishing costs: an event, a scrape, a flood of events, and the agent's memory.

    python benchmarks/exporter.py                      all of it, about five minutes
    python benchmarks/exporter.py --parts event scrape
    python benchmarks/exporter.py --quick --json out.json

Beside each figure stands one of the same run that does not depend on this package: a plain append and fsync of the same
bytes, and prometheus_client's own metrics with as many series. Nothing else heavy may run at the same time.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from _measured import write
from _timing import spread, timed
from prometheus_client import CollectorRegistry, generate_latest

from asd import Event, Level, Verdict
from asd.exporters.ledger import Ledger
from asd.exporters.prometheus.agent import Agent
from asd.exporters.prometheus.collector import AsdCollector
from asd.exporters.run_files.event_log import EventLog
from asd.judge.status import Status
from asd.origin import Origin
from asd.rundir import names as run_dir

RANKS, CHECKPOINTS = 8, 200


def event(step: int, level: Level = Level.WARNING, rank: int = 0) -> Event:
    """An event as a training makes them."""
    return Event(
        origin=Origin("llama-7b-20261121", rank, "node-0017", f"Ascend:{rank}"),
        step=step,
        checkpoint="model.layers.17.attention_norm",
        value=2.5e7,
        limits=(1e6,),
        level=level,
        kind="anomaly",
        rule="threshold",
        feature="l2",
        reason="value above the first absolute threshold 1000000",
        refused=True,
        time=1.7e9 + step,
    )


def cost_of_an_event(count: int) -> dict[str, Any]:
    """Microseconds of one event into the log, interleaved with a plain append of the same bytes."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        log = EventLog(Path(folder) / "events-rank0.jsonl")
        plain = os.open(Path(folder) / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        line = event(0).to_json().encode() + b"\n"

        def append() -> None:
            os.write(plain, line)

        def append_durably() -> None:
            os.write(plain, line)
            os.fsync(plain)

        rows: dict[str, list[float]] = {"event": [], "plain append": [], "durable event": [], "plain fsync": []}
        for step in range(count):
            second, first = event(step), event(step, Level.ERROR)
            rows["event"].append(timed(log, second) * 1e6)
            rows["plain append"].append(timed(append) * 1e6)
            if step % 10 == 0:
                pair = [(log, first), (append_durably,)]
                for function, *arguments in pair if step % 20 else reversed(pair):
                    name = "durable event" if arguments else "plain fsync"
                    rows[name].append(timed(function, *arguments) * 1e6)
        os.close(plain)
    return {f"microseconds of a {name}": spread(values) for name, values in rows.items()}


def full_status(rank: int) -> Status:
    """A rank that has judged many values of 200 checkpoints."""
    status = Status(origin=Origin("run", rank, "node-0017", f"Ascend:{rank}"), active=True, pid=os.getpid())
    for step in range(20):
        for i in range(CHECKPOINTS):
            name = f"model.layers.{i}.attention_norm"
            status.add(name, Verdict(Level.NORMAL, "", 1.5 * (step + 1), 1e6))
    return status


def cost_of_a_scrape(repeats: int, past_events: int) -> dict[str, Any]:
    """Milliseconds of processor of a page with all checkpoints, after few and after many events."""
    statuses = [full_status(rank) for rank in range(RANKS)]
    result: dict[str, Any] = {"series": {}}
    for name, events in (("after 100 events", 100), (f"after {past_events} events", past_events)):
        ledger = Ledger()
        for step in range(events):
            ledger.add(event(step, Level.ERROR, rank=step % RANKS))
        registry = CollectorRegistry()
        registry.register(AsdCollector(lambda: statuses, ledger))
        times = []
        for _ in range(repeats):
            began = time.process_time()
            page = generate_latest(registry)
            times.append((time.process_time() - began) * 1e3)
            result["series"][name] = count_series(page)
        result[f"processor milliseconds, {name}"] = spread(times)
    default = CollectorRegistry()
    default.register(AsdCollector(lambda: [replace(status, checkpoints={}) for status in statuses], Ledger()))
    result["series"]["by default"] = count_series(generate_latest(default))
    return result


def count_series(page: bytes) -> int:
    """Samples of a page."""
    return sum(1 for line in page.splitlines() if line and not line.startswith(b"#"))


WRITER = """
import sys, time
from pathlib import Path
from exporter import event
from asd.exporters.run_files.event_log import EventLog
log, rate, seconds = EventLog(Path(sys.argv[1]), keep=40), int(sys.argv[2]), float(sys.argv[3])
began, step, latest = time.perf_counter(), 0, 0.0
while step < rate * seconds:
    due = began + step / rate
    now = time.perf_counter()
    if now < due:
        time.sleep(due - now)
    latest = max(latest, now - due)
    for _ in range(100):
        step += 1
        log(event(step))
print(step, time.perf_counter() - began, latest)
"""


def flood(rate: int, seconds: float) -> dict[str, Any]:
    """A process that writes `rate` events a second while an agent counts them."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        log = run_dir.event_file(Path(folder), 0)
        agent = Agent([Path(folder)])
        command = [sys.executable, "-c", WRITER, str(log), str(rate), str(seconds)]
        environ = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent)}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as writer:
            behind = []
            while writer.poll() is None:
                behind.append(timed(agent.poll))
                time.sleep(0.5)
            assert writer.stdout is not None
            written, took, latest = writer.stdout.read().split()
        caught_up = timed(agent.poll)
        counted = sum(each.anomalies["second"] for each in agent.ledger.counts().values())
        agent.close()
    assert counted == int(written), f"{written} events written, {counted} counted"
    return {
        "events written": int(written),
        "events counted": counted,
        "events a second": int(written) / float(took),
        "writer late by at most, seconds": float(latest),
        "longest poll, seconds": max(behind),
        "last poll, seconds": caught_up,
    }


def agent_memory(events: int) -> dict[str, Any]:
    """Resident memory of an agent at a tenth and at the end of many events."""
    rounds = 10
    with tempfile.TemporaryDirectory(dir=".") as folder:
        log = EventLog(run_dir.event_file(Path(folder), 0), max_bytes=1 << 26, keep=3)
        agent = Agent([Path(folder)])
        resident = []
        for each in range(rounds):
            for step in range(events // rounds):
                log(event(each * events // rounds + step))
            agent.poll()
            resident.append(resident_megabytes())
        counted = sum(each.anomalies["second"] for each in agent.ledger.counts().values())
        agent.close()
    assert counted == events // rounds * rounds, f"{events} events written, {counted} counted"
    return {"events": counted, "megabytes at a tenth": resident[0], "megabytes at the end": resident[-1]}


def resident_megabytes() -> float:
    """What this process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


PARTS: dict[str, Callable[[bool], Any]] = {
    "event": lambda quick: cost_of_an_event(500 if quick else 20_000),
    "scrape": lambda quick: cost_of_a_scrape(5 if quick else 60, 1_000 if quick else 1_000_000),
    "flood": lambda quick: flood(10_000, 1 if quick else 20),
    "memory": lambda quick: agent_memory(10_000 if quick else 1_000_000),
}


def main() -> None:
    """Runs the chosen parts and prints them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS), help="default: all")
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that it runs")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    args = parser.parse_args()
    packages = {name: version(name) for name in ("prometheus_client", "mindspore-asd")}
    result: dict[str, Any] = {"where": {"cores": os.cpu_count(), "python": platform.python_version(), **packages}}
    for part in args.parts:
        result[part] = PARTS[part](args.quick)
        print(json.dumps({part: result[part]}, indent=1), flush=True)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        write(args.json, result)


if __name__ == "__main__":
    main()
