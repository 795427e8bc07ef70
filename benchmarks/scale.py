"""How far it scales: the fault handler under a flood of events, and what thousands of ranks tell one another.

    python benchmarks/scale.py                      all, about five minutes
    python benchmarks/scale.py --parts attribution
    python benchmarks/scale.py --quick --json out.json

Handler: the real one, with its SQLite file, the event logs of every node and the feed that reads them; nothing is
simulated but the engine, which records only (`--isolator none`). Events arrive while it works, at the rate asked for.

Pulling: the same from agents, which one process stands for; how long each event takes to its decision.

Attribution: what every rank sends, and what every rank decides when it has heard all the others. The network is the
only thing that is simulated: messages are made, packed, unpacked and judged by the code a training uses. How long a
collective takes is the network's business; how many bytes it carries is shown. Two cases: one rank broke its
limits, and all of them did.

Groups: the same and all else that ranks exchange, in jobs of tensor parallel 8 by 16 stages by more and more replicas.

Beside the time that passed stands the processor time it took, which depends less on what else the machine does.
"""

import argparse
import math
import multiprocessing
import os
import platform
import random
import statistics as stats
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _measured import write
from _scale_groups import DATA, curve
from _scale_pulling import pulling

from asd import Event, Level
from asd.diagnosis.attribution import Seen, pack_seen, unpack_seen
from asd.diagnosis.flow import attribute
from asd.exporters.run_files.event_log import EventLog
from asd.handler import FaultHandler, NoIsolator, Policy, Store
from asd.handler.inputs.feed import LogFeed
from asd.origin import Origin

DEVICES, PER_NODE, CHECKPOINTS = 10_000, 8, 200
PARTS = ("handler", "pulling", "attribution", "groups")
PULLED = 1_000_000
RANKS = (1, 4, 16, 64, 256, 1024, 4096, 10_000)


def resident(pid: int | str = "self") -> float:
    """Resident memory of a process, in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def an_event(number: int, device: int) -> Event:
    """One of a large cluster's: one in ten is first-level, in a step of its own, so that none is a double."""
    first = number % 10 == 0
    return Event(
        origin=Origin(
            f"job-{device // 256}", device % 256, f"node-{device // PER_NODE:04}", f"Ascend:{device % PER_NODE}"
        ),
        step=1 + number,
        checkpoint="model.layers.17.attention_norm",
        value=1.5e4 + number,
        limits=(1e6,),
        level=Level.ERROR if first else Level.WARNING,
        kind="anomaly",
        rule="threshold",
        feature="l2",
        reason="value above the first absolute threshold 1000000",
        refused=first,
        time=time.time(),
    )


def write_events(folders: Sequence[Path], rate: float, seconds: float, ready: Any) -> None:
    """Writes events at a rate, or as quickly as it can; a process of its own, as the trainings are."""
    logs = [EventLog(folder / "events-rank0.jsonl", max_bytes=16 << 20) for folder in folders]
    source, written = random.Random(0), 0
    ready.wait()
    began = time.monotonic()
    total = int(seconds * rate)
    while written < total:
        now = time.monotonic() - began
        while written < min(now, seconds) * rate and written < total:
            device = source.randrange(DEVICES)
            logs[device % len(logs)](an_event(written, device))
            written += 1
        time.sleep(0.002)


def handler_under_load(rate: float, seconds: float) -> dict[str, Any]:
    """Lets the handler follow what is written at `rate`, and looks at its memory and at how far it is behind."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        folders = [Path(name) / f"job{number}" for number in range(16)]
        for folder in folders:
            folder.mkdir()
        store = Store(Path(name) / "handler.sqlite")
        handler = FaultHandler(store, Policy(), NoIsolator(store), EventLog(Path(name) / "events-handler.jsonl"))
        handler.know(_devices())
        feed = LogFeed(handler, folders)
        ready = multiprocessing.get_context("spawn").Event()
        writer = multiprocessing.get_context("spawn").Process(target=write_events, args=(folders, rate, seconds, ready))
        writer.start()
        before = resident()
        ready.set()
        rows = _follow(handler, feed, writer)
        written = int(seconds * rate)
        taken = feed.events
        known = store.db.execute("SELECT count(*) FROM device").fetchone()[0]
        size = sum(path.stat().st_size for path in Path(name).glob("handler.sqlite*")) / 2**20
        handler.close()
    half = [row for row in rows if row["seconds"] >= rows[-1]["seconds"] / 2]
    return {
        "asked_rate": rate,
        "seconds": seconds,
        "written": written,
        "taken_in": taken,
        "rate": taken / rows[-1]["seconds"],
        "kept_up": rows[-1]["seconds"] < seconds + 2.0,
        "processor_share": rows[-1]["processor_seconds"] / rows[-1]["seconds"],
        "events_per_processor_second": taken / rows[-1]["processor_seconds"],
        "longest_transaction_seconds": max(row["longest_seconds"] for row in rows),
        "devices": known,
        "memory_before_mib": before,
        "memory_growth_in_second_half_mib": half[-1]["memory_mib"] - half[0]["memory_mib"],
        "database_mib": size,
        "over_time": rows,
    }


def _devices() -> list[Any]:
    from asd.isolator import Device

    return [
        Device(f"node-{number // PER_NODE:04}", f"Ascend:{number % PER_NODE}", number % 256)
        for number in range(DEVICES)
    ]


def _follow(handler: FaultHandler, feed: LogFeed, writer: Any) -> list[dict[str, float]]:
    """What `asd handler` does, until nothing more comes."""
    rows: list[dict[str, float]] = []
    began = told = time.monotonic()
    used, longest = time.process_time(), 0.0
    while True:
        alive = writer.is_alive()
        start = time.monotonic()
        decisions = feed.step()
        if decisions is None:
            handler.tick()
        now = time.monotonic()
        longest = max(longest, now - start)
        if now - told >= 1.0 or (decisions is None and not alive):
            told = now
            rows.append(
                {
                    "seconds": now - began,
                    "events": feed.events,
                    "memory_mib": resident(),
                    "processor_seconds": time.process_time() - used,
                    "longest_seconds": longest,
                }
            )
            longest = 0.0
            if sys.stderr.isatty():
                print(
                    f"\r  {now - began:5.0f} s, {feed.events:,} events, {resident():.0f} MiB ", end="", file=sys.stderr
                )
        if decisions is None:
            if not alive:
                return rows
            time.sleep(0.02)


def seen_by(rank: int, *, is_faulty: bool) -> dict[str, Seen]:
    """What a rank saw in a step: healthy values, and of a faulty rank half of them far off."""
    source = random.Random(rank)
    values = [0.01 * 2.0 ** source.gauss(0.0, 0.3) for _ in range(CHECKPOINTS)]
    if is_faulty:
        values[CHECKPOINTS // 2 :] = [value * 1e12 for value in values[CHECKPOINTS // 2 :]]
    return {f"model.layers.{order}.attention_norm": Seen(order, each, each > 1e6) for order, each in enumerate(values)}


def attribution_of(ranks: int, repeats: int, *, everybody: bool) -> dict[str, Any]:
    """Cost of one refused step for one rank: making its message, reading everybody's, and deciding."""
    faulty = ranks // 3
    messages = [pack_seen(seen_by(rank, is_faulty=everybody or rank == faulty)) for rank in range(ranks)]
    own = seen_by(faulty, is_faulty=True)
    times: dict[str, list[float]] = {"pack": [], "unpack": [], "decide": []}
    for _ in range(repeats):
        began = time.process_time()
        pack_seen(own)
        packed = time.process_time()
        step = {rank: unpack_seen(message) for rank, message in enumerate(messages)}
        unpacked = time.process_time()
        found = attribute(step)
        decided = time.process_time()
        for name, seconds in zip(times, (packed - began, unpacked - packed, decided - unpacked), strict=True):
            times[name].append(seconds)
        if found.origin != (None if everybody and ranks > 1 else faulty):
            raise AssertionError(f"{ranks} ranks: {found.reason}")
    middle = {name: stats.median(values) for name, values in times.items()}
    width = 4 * -(-max(map(len, messages)) // 4)  # the collective sends the longest from everyone, in whole words
    return {
        "ranks": ranks,
        "broke_limits": "all" if everybody else "one",
        "bytes_per_rank": width,
        "bytes_received": width * ranks + 4 * ranks,
        **{f"{name}_ms": value * 1e3 for name, value in middle.items()},
        "step_ms": sum(middle.values()) * 1e3,
    }


def exponent(rows: Sequence[dict[str, Any]], field: str) -> float:
    """Slope of the logarithm over the logarithm of the ranks, by least squares, from 64 ranks on."""
    points = [(math.log(row["ranks"]), math.log(row[field])) for row in rows if row["ranks"] >= 64]
    return stats.linear_regression(*zip(*points, strict=True)).slope


def attribution(ranks: Sequence[int], repeats: int) -> dict[str, Any]:
    """The curves, shown."""
    print(f"Attribution, {CHECKPOINTS} checkpoints; the network is simulated")
    curves, slopes = {}, {}
    for name in ("one", "all"):
        curves[name] = rows = []
        for each in ranks:
            rows.append(attribution_of(each, repeats, everybody=name == "all"))
            row = rows[-1]
            print(
                f"  {each:>6} ranks, {name} broke limits: {row['bytes_per_rank']:>5} bytes per rank, read "
                f"{row['unpack_ms']:8.2f} ms, decide {row['decide_ms']:8.2f} ms, "
                f"{row['step_ms'] / each * 1e3:6.1f} us per rank"
            )
        slopes[name] = {field: exponent(rows, field) for field in ("step_ms", "bytes_received")}
        print(
            f"  {name} broke limits: from 64 ranks on processor time grows as ranks to the power of "
            f"{slopes[name]['step_ms']:.2f}, bytes as {slopes[name]['bytes_received']:.2f}"
        )
    return {"checkpoints": CHECKPOINTS, "simulated": "the network only", "curves": curves, "exponents": slopes}


def pulled(rate: float, total: int) -> dict[str, Any]:
    """Events through the pull, shown."""
    print(f"Pulling, {DEVICES:,} devices, {total:,} events, {rate:,.0f} a second")
    found = pulling(an_event, DEVICES, PER_NODE, rate, total, resident)
    print(
        f"  {found['rate']:,.0f} a second from {found['agents']:,} agents, with {found['processor_share']:.0%} of a "
        f"core; from event to decision {found['median_seconds']:.2f} s in the middle, 99 % within "
        f"{found['p99_seconds']:.2f} s, all within {found['longest_seconds']:.2f} s; memory in the second half "
        f"{found['memory_growth_in_second_half_mib']:+.1f} MiB"
    )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints figures and, if asked, writes the same as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rate", type=float, default=5000.0, help="events a second (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=120.0, help="of the flood (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="of a refused step (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a tenth of it, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    options = parser.parse_args(arguments)
    if options.rate <= 0 or options.seconds <= 0 or options.repeats < 1:
        parser.error("--rate and --seconds must be above 0, --repeats at least 1")
    seconds, ranks, repeats = options.seconds, RANKS, options.repeats
    if options.quick:
        seconds, ranks, repeats = seconds / 10, RANKS[:6], 3
    report: dict[str, Any] = {
        "benchmark": "scale",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
    }
    if "handler" in options.parts:
        print(f"Handler, {DEVICES:,} devices, {options.rate:,.0f} events a second for {seconds:g} s")
        found = report["handler"] = handler_under_load(options.rate, seconds)
        print(
            f"\r  {found['taken_in']:,} of {found['written']:,} events taken in, {found['rate']:,.0f} a second; "
            f"{found['events_per_processor_second']:,.0f} per second of processor time, of which it took "
            f"{found['processor_share']:.0%}; longest transaction {found['longest_transaction_seconds']:.2f} s\n"
            f"  memory {found['over_time'][-1]['memory_mib']:.0f} MiB, in the second half "
            f"{found['memory_growth_in_second_half_mib']:+.1f} MiB; database {found['database_mib']:.0f} MiB"
        )
    if "pulling" in options.parts:
        report["pulling"] = pulled(options.rate, PULLED // 10 if options.quick else PULLED)
    if "attribution" in options.parts:
        report["attribution"] = attribution(ranks, repeats)
    if "groups" in options.parts:
        print("Groups of ranks; the collectives are simulated")
        rows = curve(options.repeats, DATA[:3] if options.quick else DATA)
        slopes = {field: exponent(rows, field) for field in ("hash_ms", "hash_bytes", "refused_ms")}
        report["groups"] = {
            "checkpoints": CHECKPOINTS,
            "simulated": "the collectives",
            "rows": rows,
            "exponents": slopes,
        }
        print(
            f"  with the ranks grow, as their power: time of the weights {slopes['hash_ms']:.2f}, their bytes "
            f"{slopes['hash_bytes']:.2f}, time of a refused step {slopes['refused_ms']:.2f}"
        )
    if options.json is not None:
        write(options.json, report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
