"""Trains a real Llama of mindformers on a device that computes wrongly, and shows how the fault is found and handled.

The first part is one process: a corrupted gradient is found and its update refused, and a fault that the vendor's rule
misses is healed. Then three jobs run on two devices and a spare: a device with a permanent fault is replaced, one with
a transient fault gets a strike, and damaged data accuse no device. --fault runs only the first part, with your fault.
"""

import argparse
import json
import os
from pathlib import Path

from asd.cli.shared.progress import Bar
from asd.cli.shared.stopping import quiet
from asd.config import Config
from asd.demo.play import PARTS, clear, play
from asd.errors import ConfigError
from asd.injection import PATTERNS, TARGETS, Fault

_EXAMPLES = """\
Examples:
  asd demo                                                 all parts, two to five minutes
  asd demo --parts detection                               one process only, half a minute
  asd demo --parts unseen                                  a fault that only the default finds
  asd demo --parts persistent                              two devices and a spare: a permanent fault
  asd demo --parts detection --mode pynative --steps 50    the same in PyNative, slower
  asd demo --fault gradient:norm_out:flip=30:step=20       is this fault found?
  asd demo --fault "output:layers.*ffn_norm:zero=8:step=10:duration=30:chance=0.05"
  asd demo --fault weight:layers.0.*w1:scale=1e6:step=10 --mode pynative --json

"""
_CODES = "\n\nexit codes: 0 all checks passed, 1 a check failed, 2 wrong usage, 130 interrupted."
_STEPS = 60
_FAULT = "gradient:layers.1.attention_norm:flip=30:step=45"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd demo`."""
    parser.epilog = _EXAMPLES + _help_on_faults() + _CODES
    parser.add_argument("--parts", metavar="A,B", help=f"some of {','.join(PARTS)} (default all)")
    parser.add_argument("--steps", type=int, default=_STEPS, help="steps of the first part (default %(default)s)")
    parser.add_argument("--fault", metavar="FAULT", help=f"run only the first part, with this fault (default {_FAULT})")
    parser.add_argument("--mode", choices=("graph", "pynative"), default="graph", help="default %(default)s")
    parser.add_argument("--out", type=Path, help="folder of the results (default: ASD_RUN_DIR/demo)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Runs the story; returns 0 if all checks passed, else 1."""
    fault = Fault.parse(_FAULT if args.fault is None else args.fault)
    config = Config.from_env({**os.environ, "NPU_ASD_ENABLE": "1", "ASD_ON_ANOMALY": "stop"})
    out = args.out if args.out is not None else Path(config.run_dir) / "demo"
    parts = list(PARTS if args.fault is None else PARTS[:1]) if args.parts is None else args.parts.split(",")
    if not set(parts) <= set(PARTS):
        raise ConfigError("--parts", args.parts, f"pass some of {', '.join(PARTS)}, separated by commas")
    if args.steps < 20:
        raise ConfigError("--steps", args.steps, "it must be a number from 20 on")
    if not 1 < fault.step <= args.steps:
        raise ConfigError("--fault", args.fault or _FAULT, f"its step must be from 2 to {args.steps}, see --steps")
    clear(out)
    quiet()
    os.environ.setdefault("LOCAL_DEFAULT_PATH", str(out / "mindformers"))  # else its logs go to the working directory
    result = play(parts, config, fault, args, out, Bar)
    if args.json:
        print(json.dumps(result, indent=1))
    return 0 if all(result["checks"].values()) else 1


def _help_on_faults() -> str:
    """Returns the help on faults, with every target and pattern."""
    lines = [
        "A fault is target:where:pattern=amount:step=N, with options :duration=N :rank=N :elements=N :seed=N.",
        "With :chance=P the fault is intermittent: it changes each matching call with this probability.",
    ]
    for title, known in (("targets", TARGETS), ("patterns", PATTERNS)):
        lines += [f"{title}:", *(f"  {name:<12} {meaning}" for name, meaning in known.items())]
    return "\n".join(lines)
