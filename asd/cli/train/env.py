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
from collections.abc import Mapping
from pathlib import Path

from asd.cli.shared.machine import describe_machine
from asd.cli.shared.options import add_run_dir, run_dir_of
from asd.cli.shared.printable import aligned
from asd.config import describe, unknown_variables
from asd.errors import StateError
from asd.exporters.run_files.liveness import Liveness
from asd.exporters.run_files.status_file import StatusFiles
from asd.judge.protections import Protections
from asd.records import fill


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
    unread = unknown_variables(os.environ)
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
        print(aligned([("state", "protection", "what"), *found.rows()], fits=True) if status.protections else "unknown")
    return 0
