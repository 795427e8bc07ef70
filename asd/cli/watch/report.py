"""Writes one HTML file about what happened in a run.

The file opens without a network and contains no script. It describes the findings, plots when and where they occurred,
and links to the evidence in the run folder.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from asd import __version__
from asd.cli.shared.options import add_strike_arguments, read_strike_policy, run_dir_of
from asd.errors import ConfigError
from asd.rundir.disk import write_whole

_EXAMPLES = """\
Examples:
  asd report                            the run in ASD_RUN_DIR, into its report.html
  asd report asd_run -o /tmp/run.html
  asd report asd_run --json             the same summary for programs; writes no file

exit codes: 0 done, even when the run had anomalies; 1 no such run, or the file cannot be written; 2 wrong usage."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd report`."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "run_dir", nargs="?", metavar="RUN_DIR", help="folder of the run (default: ASD_RUN_DIR, or asd_run)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="file to write (default: RUN_DIR/report.html)")
    add_strike_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the summary as JSON; write a file only with -o")


def run(args: argparse.Namespace) -> int:
    """Writes the report and prints its path."""
    from asd.exporters.report.data import read_run
    from asd.exporters.report.page import render, summary

    run_dir = run_dir_of(args)
    output = _output(args.output, run_dir)
    data = read_run(run_dir, policy=read_strike_policy(args))
    if args.output is not None or not args.json:
        write_whole(output, render(data, output, now=time.time(), version=__version__))
    facts = summary(data)
    if args.json:
        print(json.dumps(facts, indent=1))
    else:
        print(f"{facts['verdict']['lead']}\n{output}")
    for file, reason in data.unreadable.items():
        print(f"asd: {file} could not be read to the end: {reason}", file=sys.stderr)
    return 0


def _output(given: str | None, run_dir: Path) -> Path:
    if given is None:
        return run_dir / "report.html"
    # An existing file is replaced, so it must not be a folder, a pipe or a device.
    if Path(given).exists() and not Path(given).is_file():
        raise ConfigError("--output", given, "it must be the name of a file, new or to be replaced")
    return Path(given)
