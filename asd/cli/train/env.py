"""Shows the active settings, the source of each, what this machine has, and what protects the trainings of a run.

A wrong value is an error that lists the valid ones, with exit code 2, so this also checks the settings of a job.

Examples:
  asd env
  asd env --training --run-dir asd_run
  asd env --json | python -m json.tool
"""

import argparse
import json
import os
import site
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from asd.cli.shared.aligned import aligned
from asd.cli.shared.machine import describe_machine
from asd.cli.shared.options import add_run_dir, run_dir_of
from asd.config import describe, unknown_variables
from asd.errors import StateError, and_more
from asd.exporters.run_files.liveness import Liveness
from asd.exporters.run_files.status_file import StatusFiles
from asd.judge.protections import Protections
from asd.records import fill

_PROTECTIONS = {
    "checked tensors": ("NPU_ASD_ENABLE", "call `StepMonitor.attach`, and `step` after each step"),
    "rule": ("ASD_RULE=adaptive", "pass the optimizer to `StepMonitor.attach`"),
    "refusal": ("ASD_ON_ANOMALY", "ASD_ON_ANOMALY=stop or skip, and pass the optimizer to `StepMonitor.attach`"),
    "state": ("ASD_OPTIONS=detectors:state", "ASD_OPTIONS=detectors:state+checksum; an optimizer with named moments"),
    "memory": ("memory", "declare the step: `StepMonitor.watch_step`, and pass the optimizer to `StepMonitor.attach`"),
    "sampled results": ("ASD_OPTIONS=detectors:checksum", "ASD_OPTIONS=detectors:state+checksum, in PyNative mode"),
    "second look": ("ASD_OPTIONS:confirm", "ASD_OPTIONS=confirm:0.01, and declare the step: `StepMonitor.watch_step`"),
    "replay": ("ASD_OPTIONS:replay", "ASD_OPTIONS=replay:1, and declare the step: `StepMonitor.watch_step`"),
    "audit": ("audit", "`StepMonitor.watch_step(step, audit=True)`"),
    "probe": ("probe", "`asd selftest` shows which known-answer tests this device can compute"),
    "weight comparison": ("ASD_OPTIONS:weight_hash", "ASD_OPTIONS=weight_hash:16, and ranks with the same weights"),
    "links": ("links", "several ranks, and gradients reduced by a DistributedGradReducer"),
    "vendor": ("vendor", "on Ascend: MS_SDC_DETECT_ENABLE=1"),
    "manifests": ("ASD_OPTIONS:manifest", "ASD_OPTIONS=manifest:1"),
    "recording": ("ASD_OPTIONS:record", "ASD_OPTIONS=record:1, for `asd tune`"),
}
"""Each protection: the setting under which its absence is filed, and how it is switched on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd env`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    parser.add_argument(
        "--training",
        action="store_true",
        help="show what is checked in the training of each rank, and what was requested and is not",
    )
    add_run_dir(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the settings and the machine."""
    settings = describe(os.environ)
    if args.training:
        return _show_training(args)
    unread = unknown_variables()
    machine = {**describe_machine(), "start-up file": _start_up_file(os.environ)}
    if args.json:
        report = {"settings": [setting._asdict() for setting in settings], "unread": list(unread), "machine": machine}
        print(json.dumps(report, indent=2))
        return 0
    print(aligned([("setting", "value", "from", "meaning"), *settings], fits=True))
    if unread:
        names = ", ".join(f"{name} (use {instead})" for name, instead in unread.items())
        print(f"\nset, but not read by asd: {names}")
    rows = [(name, value or "not installed") for name, value in machine.items()]
    print("\n" + aligned([("this machine", ""), *rows], fits=True))
    return 0


def _start_up_file(environ: Mapping[str, str]) -> str | None:
    """Returns the file that starts detection in every Python of this environment, with its state; None without it."""
    places = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    file = next((path for place in places if (path := Path(place, "mindspore_asd.pth")).is_file()), None)
    is_off = environ.get("NPU_ASD_ENABLE", "0") in ("", "0")
    state = "active" if "mindspore_asd_start" in sys.modules else "NPU_ASD_ENABLE is off" if is_off else "not active"
    return None if file is None else f"{file}, {state}"


def _show_training(args: argparse.Namespace) -> int:
    folder = run_dir_of(args)
    ranks = sorted(StatusFiles([folder]).poll(), key=lambda status: status.rank)
    if not ranks:
        raise StateError(f"no training has left its status in {folder}.")
    if args.json:
        facts = ("rank", "run", "device", "active", "step", "protections")
        print(json.dumps({"training": [{name: getattr(status, name) for name in facts} for status in ranks]}, indent=2))
        return 0
    alive = Liveness()
    for status in ranks:
        end = "runs" if status.active and alive(status) else "its process is gone" if status.active else "has ended"
        print(f"rank {status.rank} on {status.device}, run {status.run}, step {status.step}, {end}")
        found = fill(Protections, status.protections, "protections")
        head = ("protection", "state", "since", "why, and what to do")
        print(aligned([head, *_rows(found)], fits=True) if status.protections else "unknown")
    return 0


def _rows(found: Protections) -> Iterator[tuple[str, str, str, str]]:
    """Yields the rows of a table: name, state (`on`, `off`, `missing` or `note`), since when, why and what to do."""
    since = {name: f"step {step}" if step else "start" for name, step in found.since.items()}
    seen = [f"{count} {kind}" for kind, count in found.places.items()]
    unseen = [f"no value in the first step: {and_more(names, 4)}" for names in found.unseen.values()]
    on = {**({"checked tensors": "; ".join([", ".join(seen), *unseen])} if seen else {}), **found.on}
    missing = dict(found.missing)
    for name, (setting, advice) in _PROTECTIONS.items():
        reasons, why = missing.pop(setting, []), on.pop(name, "")
        state = "missing" if reasons else "on" if why else "off"
        words = "; ".join(reasons) or why or found.off.get(name, "not set, or not applicable here")
        words += "" if state == "on" else f". To have it: {advice}"
        yield name, state, since.get(setting if reasons else name, "-"), words
    for state, rest in (("missing", {name: "; ".join(reasons) for name, reasons in missing.items()}), ("note", on)):
        yield from ((name, state, since.get(name, "-"), words) for name, words in rest.items())
