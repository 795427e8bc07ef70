"""Proposes thresholds for a budget of false alarms, from the feature values that a run has recorded.

A run records its values with ASD_OPTIONS=record:1. They are judged again by the real rules: with the thresholds of the
run, and with the proposed ones. Steps that were flagged or refused are left out, for they are no healthy ones. What the
values say about a budget they are too few for is extrapolated, and said to be.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from asd.cli.shared.printable import printable
from asd.cli.shared.progress import Bar
from asd.config import Config
from asd.errors import ConfigError, StateError
from asd.rules import RULES
from asd.rundir.recording import RecordedStep, Recording
from asd.tuning import AlarmBudget, Proposal, ProposedThreshold, held_out, propose
from asd.tuning.budget import LOWEST
from asd.tuning.rejudge import Replayed

__all__ = ["add_arguments", "run"]

_VARIABLES = {"upper": "NPU_ASD_UPPER_THRESH", "sigma": "NPU_ASD_SIGMA_THRESH"}
_EXAMPLES = """\
Examples:
  ASD_OPTIONS=record:1 asd run python train.py record the values of a training
  asd tune                                     thresholds for at most one false alarm in a million checks
  asd tune asd_run --budget 1e-7 --plot tune.svg
  eval "$(asd tune asd_run | grep ^export)"    use what it proposes
  asd tune asd_run --rule silent_check_v3      the same values, judged by another rule
  asd tune asd_run --json                      for programs

exit codes: 0 done; 1 a file can't be read or written; 2 wrong usage, or RUN_DIR holds no recorded values."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd tune`."""
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "run_dir", nargs="?", metavar="RUN_DIR", help="folder of the run (default: ASD_RUN_DIR, or asd_run)"
    )
    parser.add_argument(
        "--budget", metavar="SHARE", default="1e-6", help="first-level false alarms per check (default: 1e-6)"
    )
    parser.add_argument(
        "--warnings", metavar="SHARE", default="1e-4", help="false alarms of either level per check (default: 1e-4)"
    )
    parser.add_argument(
        "--rule", choices=tuple(RULES), metavar="RULE", help="judge by another rule (default: that of the run)"
    )
    parser.add_argument(
        "--keep-flagged", action="store_true", help="take flagged steps as healthy: their alarms were false"
    )
    parser.add_argument("--plot", metavar="FILE", help="draw the values and the thresholds into this SVG file")
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")


def run(args: argparse.Namespace) -> int:
    """Prints the proposal."""
    run_dir = Path(Config.from_env(os.environ).run_dir if args.run_dir is None else args.run_dir)
    budget = AlarmBudget(_share("--budget", args.budget), _share("--warnings", args.warnings)).checked()
    plot = _plot_file(args.plot)
    try:
        recording = Recording(run_dir)
        config = _config(recording.settings, args.rule)
        source = _Source(recording)
        proposal = propose(source, config, budget, keep_flagged=args.keep_flagged)
        fitted, later = held_out(source, config, budget, keep_flagged=args.keep_flagged)
    except StateError as error:
        raise ConfigError("RUN_DIR", str(run_dir), str(error).removesuffix(".")) from error
    source.close()
    facts = _facts(recording, proposal, fitted, later)
    print(json.dumps(facts, indent=1) if args.json else _text(run_dir, config, proposal, facts))
    if plot is not None:
        from asd.exporters.pictures.tuning import draw_tuning

        draw_tuning(plot, proposal, title=f"{run_dir}: rule {config.rule}, {facts['checks']:,} values")
        if not args.json:
            print(f"\nPicture: {plot}")
    return 0


class _Source:
    """All steps of a recording, as often as they are wanted, with a bar on a terminal."""

    def __init__(self, recording: Recording) -> None:
        self._recording, self._passes = recording, 0
        self._bar = Bar("judging recorded values", recording.size) if sys.stderr.isatty() else None

    def __call__(self) -> Iterator[RecordedStep]:
        self._passes += 1
        return self._recording.steps(self._show)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.end(f"{self._passes} passes")

    def _show(self, read: int) -> None:
        if self._bar is not None:
            self._bar.show(read * 4 / 3, f"pass {self._passes}")


def _share(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(option, text, "it must be a share of all checks such as 1e-6") from None


def _plot_file(given: str | None) -> Path | None:
    if given is None:
        return None
    path = Path(given)
    if "\0" in given or path.suffix.lower() != ".svg" or (path.exists() and not path.is_file()):
        raise ConfigError("--plot", given, "it must be the name of a .svg file, new or to be replaced")
    if not path.parent.is_dir():
        raise ConfigError("--plot", given, f"its folder {path.parent} must be there")
    return path


def _config(settings: Config, rule: str | None) -> Config:
    if rule is None or rule == settings.rule:
        return settings
    return replace(settings, rule=rule, tiers=())


def _facts(recording: Recording, proposal: Proposal, fitted: Proposal, later: Replayed) -> dict[str, Any]:
    today = proposal.today
    return {
        "rule": proposal.config.rule,
        "tiers": proposal.config.active_tiers,
        "budget": proposal.budget._asdict(),
        "ranks": len({rank for each in proposal.tests for rank, _ in each.scores.extremes}),
        "checkpoints": len({name for each in proposal.tests for _, name in each.scores.extremes}),
        "steps": today.steps,
        "checks": today.checks,
        "left_out": dict(today.left_out),
        "torn_lines": recording.torn,
        "values_needed": proposal.needed,
        "confidence": 0.95,
        "tests": [_test_facts(each) for each in proposal.tests],
        "today": _alarms(today),
        "proposed": {
            **_alarms(proposal.proposed),
            "exports": _exports(proposal),
            "not_proposed": [name for setting, name in _VARIABLES.items() if not _pair(proposal, setting)],
            "within_budget": proposal.keeps,
        },
        "by_own_margins": _alarms(proposal.unavoidable),
        "held_out": {**_alarms(later), "exports": _exports(fitted)},
    }


def _test_facts(each: ProposedThreshold) -> dict[str, Any]:
    return {
        "test": each.test.name,
        "what": each.test.what,
        "variable": _VARIABLES[each.test.setting],
        "seen": each.seen,
        "today": each.today,
        "proposed": each.pair,
        "exceeding": each.exceeding,
        "largest": [extreme._asdict() for extreme in each.drivers],
    }


def _alarms(replayed: Replayed) -> dict[str, Any]:
    return {
        "first": replayed.first,
        "second": replayed.second,
        "checks": replayed.checks,
        "checkpoints": [
            {"checkpoint": name, "rank": rank, "alarms": count}
            for (rank, name), count in replayed.checkpoints.most_common(3)
        ],
    }


def _pair(proposal: Proposal, setting: str) -> tuple[int, int] | None:
    return next((each.pair for each in proposal.tests if each.test.setting == setting), None)


def _exports(proposal: Proposal) -> dict[str, str]:
    pairs = {name: _pair(proposal, setting) for setting, name in _VARIABLES.items()}
    return {name: f"{pair[0]},{pair[1]}" for name, pair in pairs.items() if pair is not None}


def _text(run_dir: Path, config: Config, proposal: Proposal, facts: dict[str, Any]) -> str:
    budget, later = proposal.budget, facts["held_out"]
    lines = [
        f"{run_dir}: {_plural(facts['checks'], 'value')} of {_plural(facts['checkpoints'], 'checkpoint')} on "
        f"{_plural(facts['ranks'], 'rank')}, {_plural(facts['steps'], 'step')} in all; "
        f"left out: {_left_out(proposal.today)}",
        f"rule {config.rule}{' with tiers ' + ','.join(config.active_tiers) if config.active_tiers else ''}; budget: "
        f"{budget.first:g} first-level false alarms per check, {budget.second:g} of either level",
        "",
        _table(proposal),
        "",
        f"Raised on these values:  today's thresholds {_count(proposal.today)};  the proposed ones "
        f"{_count(proposal.proposed)}.",
    ]
    if proposal.unavoidable.flagged:
        lines.append(
            f"  Of both, thresholds decide nothing about {_count(proposal.unavoidable)}: the rule's own margins, or "
            "values beyond every setting."
        )
    lines += [
        f"Fitted to the first half of the steps, they raise {later['first']} first-level, {later['second']} "
        f"second-level in the {_plural(later['checks'], 'value')} of the second half.",
        _confidence(proposal),
        "",
    ]
    if not proposal.keeps:
        lines.append("# The proposed thresholds do not keep to the budget on these values.")
    lines += [f"export {name}={pair}" for name, pair in facts["proposed"]["exports"].items()]
    settings = {each.test.setting for each in proposal.tests}
    lines += [
        f"# {name} stays: too few values for a proposal"
        for setting, name in _VARIABLES.items()
        if setting in settings and name not in facts["proposed"]["exports"]
    ]
    return "\n".join(lines)


def _table(proposal: Proposal) -> str:
    rows: list[tuple[str, ...]] = [("test", "judged", "largest", "where", "today", "proposed", "first level by")]
    for each in proposal.tests:
        top = each.drivers[0] if each.drivers else None
        rows.append(
            (
                each.test.what,
                f"{each.seen:,}",
                f"{top.score:.4g}" if top else "-",
                f"{printable(top.checkpoint)}, rank {top.rank}, step {top.step}" if top else "-",
                "{},{}".format(*each.today),
                "{},{}".format(*each.pair) if each.pair else "-",
                _how(each),
            )
        )
        rows += [
            (
                "",
                "",
                f"{more.score:.4g}",
                f"{printable(more.checkpoint)}, rank {more.rank}, step {more.step}",
                *[""] * 3,
            )
            for more in each.drivers[1:]
        ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _how(each: ProposedThreshold) -> str:
    if each.pair is None:
        return "too few values"
    if each.pair == (LOWEST + 1, LOWEST):
        return "lowest that is valid"
    if each.exceeding[0] >= 0:
        return f"{each.exceeding[0]:,} may exceed"
    return "extrapolation"


def _confidence(proposal: Proposal) -> str:
    fewest = min(each.seen for each in proposal.tests)
    if fewest >= proposal.needed:
        return (
            "The first-level budget follows from the values themselves, with 95 % confidence: "
            f"that takes {proposal.needed:,} of them."
        )
    return (
        f"The first-level budget would need {proposal.needed:,} values of each test; with fewer, what lies beyond the "
        "largest is\nextrapolated from the 64 largest (log2 falls off exponentially, upper 95 % bound). It holds for "
        "trainings like this one."
    )


def _count(replayed: Replayed) -> str:
    return f"{replayed.first} first-level, {replayed.second} second-level"


def _left_out(today: Replayed) -> str:
    words = {"first": "first-level anomaly", "second": "second-level anomaly", "refused": "refused"}
    parts = [f"{count:,} ({words[reason]})" for reason, count in Counter(today.left_out).most_common()]
    return f"{', '.join(parts)} steps" if parts else "no step"


def _plural(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
