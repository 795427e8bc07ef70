"""Trains a real Llama of mindformers while a device computes wrongly, and shows how that is found, judged and survived.

First one process: a corrupted gradient is found and its update refused, and a fault that the document's rule does not
see is healed. Then a job of two devices and a spare, in three acts: a device that stays broken is replaced, one that
failed once gets a strike, for poisoned data nobody is blamed. With --fault alone the first part is played with a fault
of your choice.
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
  asd demo                                                 all of it, in two to five minutes
  asd demo --parts detection                               one process only, in half a minute
  asd demo --parts unseen                                  a fault that only the default finds
  asd demo --parts persistent                              two devices and a spare: one stays broken
  asd demo --parts detection --mode pynative --steps 50    slower, the same story
  asd demo --fault gradient:norm_out:flip=30:step=20       is this fault found?
  asd demo --fault "output:layers.*ffn_norm:zero=8:step=10:duration=30:chance=0.05"
  asd demo --fault weight:layers.0.*w1:scale=1e6:step=10 --mode pynative --json

"""
_CODES = "\n\nexit codes: 0 everything came true, 1 not, 2 wrong usage, 130 interrupted."
_STEPS = 60
_FAULT = "gradient:layers.1.attention_norm:flip=30:step=45"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd demo`."""
    parser.epilog = _EXAMPLES + _help_on_faults() + _CODES
    parser.add_argument("--parts", metavar="A,B", help=f"some of {','.join(PARTS)} (default all)")
    parser.add_argument("--steps", type=int, default=_STEPS, help="of the first part (default %(default)s)")
    parser.add_argument("--fault", metavar="FAULT", help=f"of the first part, which it plays alone (default {_FAULT})")
    parser.add_argument("--mode", choices=("graph", "pynative"), default="graph", help="default %(default)s")
    parser.add_argument("--out", type=Path, help="folder for what it leaves (default: ASD_RUN_DIR/demo)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Runs the story; returns 0 if all checks passed, else 1."""
    fault = Fault.parse(_FAULT if args.fault is None else args.fault)
    config = Config.from_env({**os.environ, "NPU_ASD_ENABLE": "1", "ASD_ON_ANOMALY": "stop"})
    out = args.out if args.out is not None else Path(config.run_dir) / "demo"
    all_parts = PARTS if args.fault is None else PARTS[:1]
    parts = list(all_parts) if args.parts is None else args.parts.split(",")
    if not set(parts) <= set(PARTS):
        raise ConfigError("--parts", args.parts, f"valid are some of {', '.join(PARTS)}, with commas between")
    if args.steps < 20:
        raise ConfigError("--steps", args.steps, "valid is a number from 20 on")
    if not 1 < fault.step <= args.steps:
        raise ConfigError(
            "--fault", args.fault or _FAULT, f"valid is a fault whose step is from 2 to {args.steps}, see --steps"
        )
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
        "A fault is target:where:pattern=amount:step=N, with :duration=N :rank=N :elements=N :seed=N as options.",
        "With :chance=P it is an intermittent device: each call of all matching places is struck with that chance.",
    ]
    for title, known in (("targets", TARGETS), ("patterns", PATTERNS)):
        lines += [f"{title}:", *(f"  {name:<12} {meaning}" for name, meaning in known.items())]
    return "\n".join(lines)
