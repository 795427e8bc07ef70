"""Proves detection on this device and in this training: it trains several times in a folder of its own.

It tests the device, compares trainings with and without detection bit for bit, measures the cost, injects faults on
the device, counts alarms of healthy steps, and follows an event to the handler. The training's code does not change,
and what it writes is redirected into the folder of the drill, which is removed at the end.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from asd.cli.shared.machine import describe_machine
from asd.cli.shared.options import number, whole_number
from asd.config import Config, cann_version
from asd.errors import ConfigError
from asd.event import Event
from asd.rundir.disk import write_whole

_EXAMPLES = """\
Examples:
  asd drill -- python train.py
  asd drill --minutes 10 --faults 4 -- python train.py --config small.yaml
  asd drill --ranks 2 -- python train.py
  asd drill -- srun --ntasks 8 python train.py       inside an allocation of Slurm

OUT/drill.html is the page to act upon. OUT/drill.json has versions and results, and no data of the training, so that
it can be sent. A training that sets no seed begins differently each time: its bits cannot be compared.

exit codes: 0 all parts that were tried held, 1 a part did not hold or the training failed, 2 wrong usage, or the
training writes what cannot be redirected (see --allow-writes), 130 interrupted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd drill`."""
    parser.epilog = _EXAMPLES
    add, default = parser.add_argument, " (default: %(default)s)"
    add("--minutes", type=number(1, 10_000), default=60, metavar="M", help="longest time" + default)
    add("--steps", type=whole_number(8, 100_000), default=40, metavar="N", help="steps of each training" + default)
    add("--faults", type=whole_number(0, 1000), default=16, metavar="N", help="faults to inject" + default)
    add("--pairs", type=whole_number(2, 1000), default=3, metavar="N", help="pairs of trainings" + default)
    add("--ranks", type=whole_number(1, 1000), metavar="N", help="start N processes through msrun")
    add("--out", type=Path, default=Path("asd_drill"), metavar="D", help="folder of the results" + default)
    add("--allow-writes", action="store_true", help="let the training write its own files in place")
    add("--json", action="store_true", help="print the result as JSON and nothing else")
    add("command_line", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="training command")


def run(args: argparse.Namespace) -> int:
    """Makes the drill; returns 0 if all parts held, else 1."""
    from asd.drill.conclusions import NOT_HELD
    from asd.drill.job import Drill
    from asd.drill.trainings import DrillJob, command_of, interrupt_once, on_interrupt
    from asd.exporters.prometheus.device_map import npu_smi_map
    from asd.exporters.report.drill import render
    from asd.exporters.run_files.event_log import read_events
    from asd.rundir.names import event_files

    words = args.command_line[1:] if args.command_line[:1] == ["--"] else args.command_line
    if not words:
        raise ConfigError("COMMAND", "", "pass a command, for example `asd drill -- python train.py`")
    Config.from_env(os.environ)
    out = args.out.resolve()
    work = out / f".work-{os.getpid()}"
    command = command_of(words, args.ranks, work, os.environ.get("PATH", os.defpath))
    bootstrap = str(Path(__file__).resolve().parents[2] / "bootstrap")
    paths = os.pathsep.join(filter(None, [bootstrap, os.environ.get("PYTHONPATH")]))
    environ, began, is_new = {**os.environ, "PYTHONPATH": paths}, time.time(), not out.exists()
    out.mkdir(parents=True, exist_ok=True)

    def tell(words: str) -> None:
        if not args.json:
            print(f"{time.time() - began:6.0f} s  {words}", file=sys.stderr, flush=True)

    def events_of(folder: Path) -> list[Event]:
        return [event for file in event_files(folder) for event in read_events(file)]

    job = DrillJob(command, environ, work, args.minutes, args.steps, args.faults, args.pairs, not args.allow_writes)
    drill = Drill(job, events_of, tell)
    on_interrupt(interrupt_once)
    try:
        drill.run()
    except BaseException:
        if is_new:
            with suppress(OSError):  # the training may have written there
                out.rmdir()
        raise
    hardware = asdict(npu_smi_map()("", "Ascend:0").hardware) | {"cann": cann_version()}
    result = drill.result({**describe_machine(), **hardware})
    write_whole(out / "drill.json", json.dumps(result, indent=1) + "\n")
    write_whole(out / "drill.html", render(result["versions"], drill.parts))
    _print(args, drill.parts, result)
    return int(any(part.state == NOT_HELD for part in drill.parts.values()))


def _print(args: argparse.Namespace, parts: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    if args.json:
        print(json.dumps(result, indent=1))
        return
    for name, part in parts.items():
        print("\n  ".join([f"{name}: {part.state}", *part.said, *filter(None, [part.advice]), *part.private]))
    print(args.out / "drill.html")
