"""Common options of commands, and types that check an option when it is parsed."""

import argparse
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from asd.config import Config
from asd.handler import Policy
from asd.handler.model.policy import WINDOW_SECONDS


def number(least: float, most: float, kind: Callable[[str], float] = float) -> Callable[[str], float]:
    """Returns the type of a number in this range, a whole one if the kind is `int`."""

    def read(text: str) -> float:
        with contextlib.suppress(ValueError):
            if least <= kind(text) <= most:
                return kind(text)
        what = "a whole number" if kind is int else "a number"
        raise wrong(text, f"it must be {what} from {least:g} to {most:.9g}")

    return read


def whole_number(least: int, most: int = 10**9 - 1) -> Callable[[str], float]:
    """Returns the type of a whole number in this range."""
    return number(least, most, int)


def wrong(text: str, valid: str) -> argparse.ArgumentTypeError:
    """Returns the error of a type about a value."""
    return argparse.ArgumentTypeError(f"has the value {text!r}, which is not valid: {valid}")


def add_run_dir(parser: argparse.ArgumentParser, **more: str) -> None:
    """Adds the option that names the folder of a run; `more` are arguments of `add_argument`."""
    more = {"help": "folder of the run (default: ASD_RUN_DIR)", **more}
    parser.add_argument("--run-dir", type=Path, metavar="D", **more)  # type: ignore[arg-type]


def run_dir_of(args: argparse.Namespace) -> Path:
    """Returns the folder of the run, from the option or the settings."""
    return Path(args.run_dir or Config.of_process().run_dir)


def add_strike_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that define a strike: commands that show strikes have the same ones as the fault handler."""
    _add(parser, "--strikes", whole_number(1, 1000), 3, "strikes that isolate a device")
    _add(parser, "--window", number(0.01, 527_040), 480, "minutes in which a strike counts fully")
    _add(parser, "--many", whole_number(2), 3, "devices with anomalies at once that count as software")


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that make a policy."""
    add_strike_arguments(parser)
    _add(parser, "--half-life", number(0.01, 366), 30, "days in which the weight of a strike halves, after the window")
    _add(parser, "--settle", number(0, 3600), 30, "seconds that a strike waits for others of its job")
    _add(parser, "--max-devices", whole_number(0), 2, "most isolations per node in 24 h")
    _add(parser, "--max-percent", number(0, 100), 10, "most nodes with isolations in 24 h, in percent, at least two")
    _add(parser, "--release-after", number(0, 8784), 48, "hours without a fault until a stress test releases; 0: never")


def _add(parser: argparse.ArgumentParser, name: str, kind: Callable[[str], float], default: float, words: str) -> None:
    parser.add_argument(name, type=kind, default=default, metavar="N", help=f"{words} (default: %(default)s)")


def read_policy(args: argparse.Namespace) -> Policy:
    """Returns the policy from the options of `add_policy_arguments` and `--dry-run`."""
    return replace(
        read_strike_policy(args),
        half_life_seconds=args.half_life * 86400,
        settle_seconds=args.settle,
        max_devices=args.max_devices,
        max_percent=args.max_percent,
        release_after_seconds=args.release_after * 3600,
        dry_run=args.dry_run,
    )


def read_strike_policy(args: argparse.Namespace) -> Policy:
    """Returns the policy from the options of `add_strike_arguments`."""
    window = args.window * 60.0
    return Policy(
        strikes=args.strikes, window_seconds=window, stale_seconds=max(window, WINDOW_SECONDS), many_devices=args.many
    )
