"""Run a benchmark of a source checkout: `detection` injects faults into real trainings and compares every detector.

Examples:
  asd bench detection --quick           a subset, about ten minutes on two free cores
  asd bench detection --json out.json   everything; stop it at any time, and start it again to go on
  asd bench detection --help            its options
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from asd.errors import UnsupportedError

__all__ = ["add_arguments", "run"]

BENCHMARKS = ("detection",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which benchmark; everything after it is the benchmark's own."""
    parser.add_argument("benchmark", choices=BENCHMARKS, help="which one")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="its options; --help lists them")


def run(args: argparse.Namespace) -> int:
    """Hands over to the benchmark; its exit code."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "benchmarks" / args.benchmark / "__main__.py").is_file():
        raise UnsupportedError(
            f"benchmark {args.benchmark} is not in the installed package; valid is a source checkout."
        )
    sys.path.insert(0, str(root))
    return int(import_module(f"benchmarks.{args.benchmark}.command").main(args.options))
