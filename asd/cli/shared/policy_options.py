"""The options that make a policy, the same for every command that has one."""

from __future__ import annotations

import argparse
import contextlib
import math
from dataclasses import replace

from asd.errors import ConfigError
from asd.handler import Policy
from asd.handler.policy import RULES, SUSPICION
from asd.rules.step.strikes import WINDOW_SECONDS

__all__ = [
    "add_policy_arguments",
    "add_strike_arguments",
    "number",
    "read_policy",
    "read_strike_policy",
    "whole_number",
]


def add_strike_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that decide what a strike is: whoever shows strikes takes the same as the fault handler."""
    parser.add_argument("--strikes", default="3", metavar="N", help="so many take a device out (default: %(default)s)")
    parser.add_argument("--window", default="480", metavar="MIN", help="minutes a strike counts (default: %(default)s)")
    parser.add_argument(
        "--many", default="3", metavar="N", help="so many devices at once are software (default: %(default)s)"
    )
    parser.add_argument(
        "--policy",
        choices=RULES,
        default=SUSPICION,
        help="suspicion: after the window a strike counts less and less, for months; strikes: no more "
        "(default: %(default)s)",
    )


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options that make a policy."""
    add_strike_arguments(parser)
    parser.add_argument(
        "--half-life",
        default="30",
        metavar="D",
        help="days in which suspicion halves what a strike counts (default: %(default)s)",
    )
    parser.add_argument(
        "--settle",
        default="30",
        metavar="S",
        help="seconds a strike waits for others of its job (default: %(default)s)",
    )
    parser.add_argument(
        "--max-devices", default="2", metavar="N", help="isolations in 24 h at most (default: %(default)s)"
    )
    parser.add_argument(
        "--max-percent",
        default="10",
        metavar="P",
        help="the same in percent of the known devices (default: %(default)s)",
    )
    parser.add_argument(
        "--release-after",
        default="48",
        metavar="H",
        help="hours without a fault after which a device is given back, by suspicion once it passes a stress test; "
        "0 never (default: %(default)s)",
    )


def read_policy(args: argparse.Namespace, *, dry_run: bool = False) -> Policy:
    """Reads the options of a policy.

    Raises:
        ConfigError: One has no valid value.
    """
    return replace(
        read_strike_policy(args),
        half_life_seconds=number("--half-life", args.half_life, 0.01, 366) * 86400,
        settle_seconds=number("--settle", args.settle, 0, 3600),
        max_devices=whole_number("--max-devices", args.max_devices, 0, 1_000_000),
        max_percent=number("--max-percent", args.max_percent, 0, 100),
        release_after_seconds=number("--release-after", args.release_after, 0, 8784) * 3600,
        dry_run=dry_run,
    )


def read_strike_policy(args: argparse.Namespace) -> Policy:
    """Reads the options of `add_strike_arguments`.

    Raises:
        ConfigError: One has no valid value.
    """
    window = number("--window", args.window, 0.01, 527_040) * 60
    return Policy(
        rule=args.policy,
        strikes=whole_number("--strikes", args.strikes, 1, 1000),
        window_seconds=window,
        stale_seconds=max(window, WINDOW_SECONDS),
        many_devices=whole_number("--many", args.many, 2, 1_000_000),
    )


def whole_number(option: str, text: str, least: int, most: int) -> int:
    """Reads a whole number from `least` to `most`.

    Raises:
        ConfigError: It is none; the sentence names `option`.
    """
    if text.isascii() and text.isdecimal() and len(text) <= 9 and least <= int(text) <= most:
        return int(text)
    raise ConfigError(option, text, f"it must be a whole number from {least} to {most}")


def number(option: str, text: str, least: float, most: float, what: str = "a number") -> float:
    """Reads a number from `least` to `most`, which is `what`.

    Raises:
        ConfigError: It is none; the sentence names `option`.
    """
    with contextlib.suppress(ValueError):
        value = float(text)
        if math.isfinite(value) and least <= value <= most:
            return value
    raise ConfigError(option, text, f"it must be {what} from {least:g} to {most:.9g}")
