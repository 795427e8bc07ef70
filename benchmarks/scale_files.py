"""How far the readers of a node's files scale: a log of a gigabyte, thousands of logs.

    python benchmarks/scale_files.py                      all of it, about ten minutes
    python benchmarks/scale_files.py --parts events
    python benchmarks/scale_files.py --quick --json out.json
    python benchmarks/scale_files.py --against CHECKOUT   each measurement in turns with the package of another checkout

Each measurement is a process of its own, so that its memory and its processor seconds are its own. Wall times depend on
what else the machine does and stand beside the processor seconds, which depend on it much less.

- events: `asd events` over the logs of 16 ranks, as JSON and as a table
- logs: the agent over thousands of logs: catching up with 50 events in each, then one second after the other with
  nothing new, then with one event a second in one log
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
RANKS = 16
PER_LOG = 50
IDLE_SECONDS = 10
LARGEST_FOR_BOTH = 256  # MiB; the earlier version held it all, four times over
_Row = dict[str, Any]


def an_event(number: int, rank: int) -> Any:
    """A second-level anomaly, as long as most are."""
    from asd import Event, Level
    from asd.origin import Origin

    return Event(
        origin=Origin("job-1", rank, "node-0007", f"Ascend:{rank % 8}"),
        step=1 + number,
        checkpoint="model.layers.17.attention_norm",
        value=1.5e4 + number,
        limits=(1e6,),
        level=Level.WARNING,
        kind="anomaly",
        rule="threshold",
        feature="l2",
        reason="value above the first absolute threshold 1000000",
        refused=False,
        time=1.7e9 + number,
        micro_batch=1,
    )


def write_logs(folder: Path, ranks: int, each: int) -> None:
    """`ranks` logs of `each` events, whose times lie between those of the others."""
    for rank in range(ranks):
        with (folder / f"events-rank{rank}.jsonl").open("w") as file:
            file.writelines(an_event(number, rank).to_json() + "\n" for number in range(each))


def measured(checkout: Path, *command: str) -> tuple[_Row, bytes]:
    """Runs a command with the package of a checkout; what it took, and what it printed at the end."""
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        cwd=checkout,
    ) as process:
        assert process.stdout is not None
        last = b""
        while block := process.stdout.read(1 << 20):
            last = block
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    row = {
        "seconds": time.monotonic() - began,
        "processor_seconds": used.ru_utime + used.ru_stime,
        "most_memory_mib": used.ru_maxrss / 1024,
    }
    return row, last


def events(turns: Sequence[tuple[str, Path]], *, quick: bool) -> Iterable[_Row]:
    """`asd events` over logs of several sizes."""
    for mebibytes in (8, 16) if quick else (256, 1024):
        with tempfile.TemporaryDirectory(dir=".") as name:
            folder = Path(name).resolve()
            write_logs(folder, RANKS, round(mebibytes * 2**20 / RANKS / (len(an_event(99_999, 9).to_json()) + 1)))
            size = sum(path.stat().st_size for path in folder.iterdir()) / 2**20
            for form in ("json", "table"):
                for which, checkout in turns if mebibytes <= LARGEST_FOR_BOTH else turns[-1:]:
                    row, _ = measured(
                        checkout, "-m", "asd", "events", "--run-dir", str(folder), *["--json"] * (form == "json")
                    )
                    yield {"package": which, "log_mib": size, "form": form, **row}


def logs(turns: Sequence[tuple[str, Path]], *, quick: bool) -> Iterable[_Row]:
    """The agent over many logs."""
    for count in (200, 400) if quick else (1000, 2000, 4000):
        for which, checkout in turns:
            with tempfile.TemporaryDirectory(dir=".") as name:
                folder = Path(name).resolve()
                write_logs(folder, count, PER_LOG)
                row, last = measured(checkout, str(HERE), "--child", "logs", str(folder))
            yield {"package": which, "logs": count, **json.loads(last), "most_memory_mib": row["most_memory_mib"]}


def child_logs(folder: Path) -> _Row:
    """Lets an agent follow the logs of `folder`; processor seconds."""
    from asd.exporters.prometheus.agent import Agent

    agent = Agent([folder])
    row: _Row = {}
    began = time.process_time()
    agent.poll()
    row["catching_up"] = time.process_time() - began
    time.sleep(3.0)  # files that were changed a moment ago are looked at again
    agent.poll()
    for name, file in (("idle", None), ("one_event_a_second", folder / "events-rank7.jsonl")):
        used = 0.0
        for number in range(IDLE_SECONDS):
            if file is not None:
                with file.open("a") as log:
                    log.write(an_event(10_000 + number, 7).to_json() + "\n")
            time.sleep(1.0)
            began = time.process_time()
            agent.poll()
            used += time.process_time() - began
        row[f"{name}_share_of_a_core"] = used / IDLE_SECONDS
    agent.close()
    return row


PARTS: dict[str, Callable[..., Iterable[_Row]]] = {"events": events, "logs": logs}


def main() -> None:
    """Prints figures and, if asked, writes the same as JSON; parts that were not measured stay as they are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=tuple(PARTS), default=tuple(PARTS), help="default: all")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="an earlier version to measure in turns with")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--child", nargs=2, metavar=("PART", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child_logs(Path(options.child[1]))))
        return
    turns = [("this", HERE.parents[1])]
    if options.against is not None:
        turns.insert(0, ("earlier", options.against.resolve()))
    report: _Row = {}
    if options.json is not None and options.json.exists():
        report = json.loads(options.json.read_text(encoding="utf-8"))
    report.update(
        benchmark="scale_files", python=platform.python_version(), machine=platform.machine(), cores=os.cpu_count()
    )
    for part in options.parts:
        report[part] = {"load_before": os.getloadavg()[0], "rows": []}
        for row in PARTS[part](turns, quick=options.quick):
            report[part]["rows"].append(row)
            print(part, json.dumps(row), flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
