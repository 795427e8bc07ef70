"""Shows the settings in force, where each comes from, and what this machine has.

A wrong value ends with a sentence that lists the valid ones and exit code 2, so this also checks the settings of a job.

Examples:
  asd env
  asd env --json | python -m json.tool
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence

from asd.cli.machine import describe_machine
from asd.config import describe, unknown_variables

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd env`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def run(args: argparse.Namespace) -> int:
    """Prints the settings and the machine."""
    settings = describe(os.environ)
    unread = unknown_variables(os.environ)
    machine = describe_machine()
    if args.json:
        report = {"settings": [setting._asdict() for setting in settings], "unread": list(unread), "machine": machine}
        print(json.dumps(report, indent=2))
        return 0
    print(_table(("setting", "value", "from", "meaning"), settings))
    if unread:
        names = ", ".join(f"{name} (the nearest that is read: {nearest})" for name, nearest in unread.items())
        print(f"\nset, but not read by asd: {names}")
    print("\n" + _table(("this machine", ""), [(name, value or "not installed") for name, value in machine.items()]))
    return 0


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
