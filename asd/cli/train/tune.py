"""Proposes thresholds for a budget of false alarms, from the feature values that a run has recorded.

A run records its values with ASD_OPTIONS=record:1. The real rules judge them again: with the thresholds of the run, and
without thresholds. Steps that were flagged or refused are left out, because they are not healthy. The tail beyond
the largest value is extrapolated.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from asd.cli.shared.aligned import aligned
from asd.cli.shared.options import number, run_dir_of
from asd.cli.shared.progress import Bar
from asd.config import Config
from asd.errors import ConfigError, StateError, printable
from asd.rundir.recording import Recording
from asd.tuning.proposal import Proposal, Replayed, propose

_VARIABLES = {"upper": "NPU_ASD_UPPER_THRESH", "sigma": "NPU_ASD_SIGMA_THRESH"}
_EXAMPLES = """\
Examples:
  ASD_OPTIONS=record:1 asd run python train.py record the values of a training
  asd tune                                     thresholds for at most one false alarm in a million checks
  eval "$(asd tune asd_run | grep ^export)"    use the proposed thresholds

exit codes: 0 done; 1 a file cannot be read; 2 wrong usage, or RUN_DIR has no recorded values."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd tune`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("run_dir", nargs="?", metavar="RUN_DIR", help="folder of the run (default: ASD_RUN_DIR)")
    share = number(1e-12, 0.01)
    parser.add_argument("--budget", type=share, default=1e-6, help="first-level false alarms per check (default: 1e-6)")
    parser.add_argument(
        "--warnings", type=share, default=1e-4, help="false alarms of either level per check (default: 1e-4)"
    )


def run(args: argparse.Namespace) -> int:
    """Prints the proposal."""
    run_dir = run_dir_of(args)
    if args.warnings < args.budget:
        raise ConfigError("--warnings", args.warnings, f"at least --budget, which is {args.budget:g}")
    try:
        recording = Recording(run_dir)
        bar = Bar("judging recorded values", recording.size, silent=not sys.stderr.isatty())
        config = recording.settings
        steps = lambda: recording.steps(lambda read: bar.show(read, ""))  # noqa: E731
        proposal = propose(steps, config, args.budget, args.warnings)
    except StateError as error:
        raise ConfigError("RUN_DIR", str(run_dir), str(error).removesuffix(".")) from error
    bar.end("done")
    print(_text(run_dir, config, proposal))
    return 0


def _text(run_dir: Path, config: Config, proposal: Proposal) -> str:
    today = proposal.today
    ranks, checkpoints = ({place[i] for place in today.places} for i in (0, 1))
    left_out = ", ".join(f"{count:,} ({reason})" for reason, count in today.left_out.most_common())
    lines = [
        f"{run_dir}: {today.checks:,} values of {len(checkpoints)} checkpoints on {len(ranks)} ranks, {today.steps:,} "
        f"steps in all; left out: {left_out or 'no'} steps",
        f"rule {config.rule}{' with detectors ' if config.active_detectors else ''}{','.join(config.active_detectors)}",
        "",
        aligned([("test", "judged", "largest", "where", "proposed"), *_rows(proposal)]),
        "",
        f"Raised on the values:  today's thresholds {_count(today)};  without thresholds {_count(proposal.proposed)}.",
    ]
    if proposal.proposed.first or proposal.proposed.second:
        lines.append("  No thresholds prevent the latter: they come from the rule's own margins, or infinite values.")
    lines += ["", *(f"export {_VARIABLES[setting]}={high},{low}" for setting, (high, low) in proposal.pairs.items())]
    few = dict.fromkeys(test.setting for test in proposal.proposed.scores if test.setting not in proposal.pairs)
    return "\n".join([*lines, *(f"# {_VARIABLES[setting]} stays: too few values for a proposal" for setting in few)])


def _rows(proposal: Proposal) -> Iterator[tuple[str, ...]]:
    for test, scores in proposal.proposed.scores.items():
        pair = proposal.pairs.get(test.setting)
        largest, where = scores.extreme
        proposed = "{},{}".format(*pair) if pair else "too few values"
        yield test.what, f"{scores.counts.total():,}", f"{largest:.4g}", printable(where) or "-", proposed


def _count(replayed: Replayed) -> str:
    return f"{replayed.first} first-level, {replayed.second} second-level"
