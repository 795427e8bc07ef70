"""`asd demo --fault`: trains a small Llama with one fault and says whether, where and when it was found."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from asd.cli.shared.quiet import quiet
from asd.cli.shared.story import Story
from asd.config import Config
from asd.errors import ConfigError
from asd.event import Event
from asd.injection import PATTERNS, TARGETS, Fault
from asd.verdict import Level

__all__ = ["help_on_faults", "play_fault"]

_STEPS = 40


def help_on_faults() -> str:
    """How a fault is written, with every target and pattern."""
    return "\n".join(
        [
            "A fault is target:where:pattern=amount:step=N, with :duration=N :rank=N :elements=N :seed=N as options.",
            "With :chance=P it is an intermittent device: each call of all matching places is struck with that chance.",
            "targets:",
            *(f"  {name:<12} {meaning}" for name, meaning in TARGETS.items()),
            "patterns:",
            *(f"  {name:<12} {meaning}" for name, meaning in PATTERNS.items()),
        ]
    )


def play_fault(fault: Fault, args: argparse.Namespace) -> int:
    """Trains with a fault; 0 if it was found, 1 if not.

    Args:
        fault: What goes wrong.
        args: The options `steps`, `rule`, `mode` and `json` of `asd demo`.

    Raises:
        ConfigError: A setting is not valid, or the fault strikes nothing.
    """
    settings = {"NPU_ASD_ENABLE": "1", "ASD_ON_ANOMALY": "skip"} | ({"ASD_RULE": args.rule} if args.rule else {})
    config = Config.from_env({**os.environ, **settings})
    steps = _STEPS if args.steps is None else args.steps
    if not 1 <= fault.step <= steps:
        raise ConfigError("--fault", args.fault, f"valid is a fault whose step is from 1 to {steps}, see --steps")
    with tempfile.TemporaryDirectory() as folder:
        quiet(Path(folder), is_temporary=True)
        events: list[Event] = []
        label, sinks = f"{args.mode}, rule {config.rule}", [events.append]
        done = Story(args, Path(folder)).train(label, steps, config=config, sinks=sinks, fault=fault)
    result = _result(fault, done, events)
    print(json.dumps(result, indent=1) if args.json else "\n".join(_sentences(result, fault)))
    return 0 if result["found"] else 1


def _result(fault: Fault, done: Any, events: list[Event]) -> dict[str, Any]:
    struck = done.changes[0].step if done.changes else fault.step
    found, warning = (
        next((event for event in events if event.level is level and event.step >= struck), None)
        for level in (Level.ERROR, Level.WARNING)
    )
    return {
        "fault": str(fault),
        "struck": done.where,
        "changes": [
            {**change._asdict(), "before": str(change.before), "after": str(change.after)} for change in done.changes
        ],
        "found": found is not None,
        "steps_to_detect": found.step - struck if found is not None else None,
        "checkpoint": found.checkpoint if found is not None else None,
        "value": str(found.value) if found is not None else None,
        "reason": found.reason if found is not None else None,
        "refused_steps": sorted({event.step for event in events if event.refused}),
        "first_warning_step": warning.step if warning is not None else None,
        "alarms_before": sum(event.step < struck and event.level is Level.ERROR for event in events),
        "final_loss": done.losses[-1],
    }


def _sentences(result: dict[str, Any], fault: Fault) -> list[str]:
    if not result["changes"]:
        return [f"The fault never struck {result['struck']}."]
    change, struck = result["changes"][0], len(result["changes"])
    where = f"{result['struck']} in {struck} step(s)"
    if fault.chance != 1:
        where = f"{struck} call(s) of {len({each['where'] for each in result['changes']})} place(s)"
    found = [f"Not found at the first level; second level: step {result['first_warning_step'] or 'none'}."]
    if result["found"]:
        value = f"{float(result['value']):.6g}, {result['reason']}"
        found = [
            f"Found after {result['steps_to_detect']} step(s) at {result['checkpoint']}: value {value}.",
            f"Refused steps: {', '.join(map(str, result['refused_steps']))}.",
        ]
    return [
        f"Struck {where} from step {fault.step} on: {change['elements']} element(s).",
        f"The first of them at {list(change['at'])}: {float(change['before']):.6g} -> {float(change['after']):.6g}.",
        *found,
        f"First-level alarms before the fault: {result['alarms_before']}. Final loss {result['final_loss']:.4f}.",
    ]
