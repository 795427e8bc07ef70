"""`asd demo --fault`: trains a small Llama with one fault and says whether, where and when it was found."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from asd.cli.shared.progress import Progress
from asd.cli.shared.quiet import quiet
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
        result = _train(config, fault, steps, args)
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        _tell(result, fault)
    return 0 if result["found"] else 1


def _train(config: Config, fault: Fault, steps: int, args: argparse.Namespace) -> dict[str, Any]:
    from asd.operators.drill import workload

    workload.use_mode(args.mode)
    events: list[Event] = []
    progress = None if args.json else Progress(f"{args.mode}, rule {config.rule}", steps)
    done = workload.train(workload.SMALL, steps, config=config, sinks=[events.append], fault=fault, tell=progress)
    if progress is not None:
        progress.close()
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


def _tell(result: dict[str, Any], fault: Fault) -> None:
    if not result["changes"]:
        print(f"The fault never struck {result['struck']}.")
        return
    change, struck = result["changes"][0], len(result["changes"])
    before, after = float(change["before"]), float(change["after"])
    places = {each["where"] for each in result["changes"]}
    where = (
        f"{result['struck']} in {struck} step(s)"
        if fault.chance == 1
        else f"{struck} call(s) of {len(places)} place(s)"
    )
    print(f"Struck {where} from step {fault.step} on: {change['elements']} element(s).")
    print(f"The first of them at {list(change['at'])}: {before:.6g} -> {after:.6g}.")
    if result["found"]:
        steps, value = result["steps_to_detect"], float(result["value"])
        print(f"Found after {steps} step(s) at {result['checkpoint']}: value {value:.6g}, {result['reason']}.")
        print(f"Refused steps: {', '.join(map(str, result['refused_steps']))}.")
    else:
        warning = result["first_warning_step"]
        print(f"Not found at the first level; second level: {f'step {warning}' if warning else 'nothing'}.")
    print(f"First-level alarms before the fault: {result['alarms_before']}. Final loss {result['final_loss']:.4f}.")
