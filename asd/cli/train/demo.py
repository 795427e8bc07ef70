"""Trains a real Llama of mindformers while a device computes wrongly, and shows how that is found, judged and survived.

First one process: a corrupted gradient is found and its update refused, and a fault that the document's rule does not
see is healed. Then a job of two devices and a spare, in three acts: a device that stays broken is replaced, one that
failed once gets a strike, for poisoned data nobody is blamed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from pathlib import Path
from typing import Any

from asd.cli.shared.quiet import quiet
from asd.config import Config
from asd.errors import ConfigError
from asd.injection import Fault
from asd.rules import RULES

__all__ = ["add_arguments", "run"]

PARTS = ("detection", "unseen", "persistent", "transient", "poisoned")
_EXAMPLES = """\
Examples:
  asd demo                                                 all of it, in two to five minutes
  asd demo --parts detection                               one process only, in half a minute
  asd demo --parts unseen                                  a fault that only the default finds
  asd demo --parts persistent                              two devices and a spare: one stays broken
  asd demo --parts detection --rule adaptive --fault gradient:ffn_norm:flip=27:step=40
  asd demo --parts detection --mode pynative --steps 40    slower, the same story
  asd demo --json                                          the result for programs

exit codes: 0 everything came true, 1 something did not, 2 wrong usage, 130 interrupted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd demo`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--parts", default=",".join(PARTS), metavar="A,B", help="some of %(default)s (default all)")
    parser.add_argument("--steps", type=int, default=60, help="training steps, from 20 on (default %(default)s)")
    parser.add_argument(
        "--fault", default="gradient:layers.1.attention_norm:flip=30:step=45", metavar="SPEC",
        help="what goes wrong, target:where:pattern=amount:step=N (default %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--rule", choices=tuple(RULES), metavar="RULE", help="which rule judges (default: ASD_RULE, or adaptive)"
    )
    parser.add_argument("--mode", choices=("graph", "pynative"), default="graph", help="default %(default)s")
    parser.add_argument("--out", type=Path, help="folder for what it leaves (default: ASD_RUN_DIR/demo)")
    parser.add_argument("--seed", type=int, default=1, help="for weights and data (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Runs the story; 0 if everything in it came true."""
    told = {"NPU_ASD_ENABLE": "1", "ASD_ON_ANOMALY": "stop"} | ({"ASD_RULE": args.rule} if args.rule else {})
    config = Config.from_env({**os.environ, **told})
    out = args.out if args.out is not None else Path(config.run_dir) / "demo"
    fault = Fault.parse(args.fault)
    parts = args.parts.split(",")
    if not set(parts) <= set(PARTS):
        raise ConfigError("--parts", args.parts, f"valid are some of {', '.join(PARTS)}, with commas between")
    if args.steps < 20:
        raise ConfigError("--steps", args.steps, "valid is a number from 20 on")
    if not 1 < fault.step <= args.steps:
        raise ConfigError("--fault", args.fault, f"valid is a fault whose step is from 2 to {args.steps}, see --steps")
    _clear(out)
    quiet(out)
    result = _tell(parts, config, fault, args, out)
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print(
            "\nNext: `export NPU_ASD_ENABLE=1` and `asd run python train.py` for a training of your own;\n"
            "      `asd run --ranks 2 --spares 1 -- python train.py` for a job that replaces its devices;\n"
            "      `asd drill --help` for other faults; `asd env` for the settings."
        )
    return 0 if all(result["checks"].values()) else 1


def _tell(parts: list[str], config: Config, fault: Fault, args: argparse.Namespace, out: Path) -> dict[str, Any]:
    result: dict[str, Any] = {"checks": {}}
    if "detection" in parts:
        from asd.cli.train.demo_detection import Detection

        result = Detection(config, fault, args, out).tell()
    if "unseen" in parts:
        from asd.cli.train.demo_unseen import Unseen

        told = Unseen(out, seed=args.seed, mode=args.mode, is_quiet=args.json).tell()
        result |= {"checks": {**result["checks"], **told["checks"]}}
    acts = [part for part in PARTS[2:] if part in parts]
    if acts:
        from asd.cli.train.demo_job import Acts

        told = Acts(out, seed=args.seed, mode=args.mode, is_quiet=args.json).tell(acts)
        result |= {**told, "checks": {**result["checks"], **told["checks"]}}
    return result


def _clear(out: Path) -> None:
    """Makes room, but never deletes what an earlier demo did not leave."""
    marker = out / ".asd-demo"
    if out.exists() and any(out.iterdir()) and not marker.exists():
        raise ConfigError("--out", str(out), "valid is a new or empty folder, or one that an earlier demo left")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    marker.touch()
