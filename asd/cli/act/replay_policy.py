"""Answers what another policy would have isolated, from past event logs.

The events run through the same rules with a clock that shows their times; nothing is touched. The outcome is compared
with what the logs say was isolated.
"""

from __future__ import annotations

import argparse
import json
from datetime import datetime, timezone
from pathlib import Path

from asd.cli.shared.policy_options import add_policy_arguments, read_policy
from asd.cli.shared.printable import printable
from asd.errors import ConfigError, StateError
from asd.event import Event
from asd.exporters.run_files.event_log import read_events
from asd.handler.simulation import Comparison, PolicyOutcome, simulate
from asd.rundir import names as run_dir

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
LOG is an event log or a run folder, which stands for all its logs.

Examples:
  asd replay-policy asd_run                                what the default policy would have isolated
  asd replay-policy asd_run --strikes 2 --window 60        and one that is quicker
  asd replay-policy events-rank*.jsonl --max-devices 10 --json

exit codes: 0 done, 1 the job failed, 2 wrong usage."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd replay-policy`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="event logs or run folders")
    add_policy_arguments(parser)
    parser.add_argument("--verbose", action="store_true", help="print every decision, too")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def run(args: argparse.Namespace) -> int:
    """Simulates and prints."""
    policy = read_policy(args)
    outcome = simulate(_read(args.logs), policy)
    if args.json:
        print(json.dumps(_to_json(outcome), ensure_ascii=False, indent=1))
        return 0
    if args.verbose:
        for decision in outcome.decisions:
            print(printable(f"{_utc(decision.time)}  {decision.action}: {decision.reason}"))
    _print_table(outcome.devices)
    would = sum(each.would is not None for each in outcome.devices)
    was = sum(each.was is not None for each in outcome.devices)
    print(f"{outcome.events} events: this policy would have isolated {would} devices, the logs tell of {was}.")
    return 0


def _read(paths: list[Path]) -> list[Event]:
    events: list[Event] = []
    for path in paths:
        logs = run_dir.event_files(path) if path.is_dir() else [path]
        if not path.exists():
            raise ConfigError("LOG", str(path), "it must be an event log or a run folder")
        if not logs:
            raise ConfigError("LOG", str(path), "it must be a run folder with event logs, or an event log")
        found = [event for log in logs for event in read_events(log)]
        if not found and any(log.stat().st_size for log in logs):
            raise StateError(f"{path} has no events; valid are the lines of an event log, one CloudEvent each.")
        events += found
    return events


def _print_table(devices: list[Comparison]) -> None:
    if not devices:
        return
    head = ["HOST", "DEVICE", "RANK", "WOULD BE ISOLATED", "WAS ISOLATED", "WHY"]
    rows = [
        head,
        *(
            [each.host, each.device, str(each.rank) if each.rank >= 0 else "-", _utc(each.would), _utc(each.was),
             each.why.partition(": ")[2].rpartition(", so ")[0] or "this policy finds no reason"]
            for each in devices
        ),
    ]  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    for row in rows:
        print(printable("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()))


def _to_json(outcome: PolicyOutcome) -> dict[str, object]:
    return {
        "events": outcome.events,
        "devices": [
            {**each._asdict(), "would": _utc(each.would) if each.would is not None else None,
             "was": _utc(each.was) if each.was is not None else None}
            for each in outcome.devices
        ],
        "decisions": [json.loads(decision.to_json()) for decision in outcome.decisions],
    }  # fmt: skip


def _utc(time: float | None) -> str:
    return "-" if time is None else datetime.fromtimestamp(time, timezone.utc).isoformat(timespec="seconds")
