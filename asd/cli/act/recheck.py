"""Computes the operator that an alarm kept again and again, on any device and without the training.

An alarm of a check of results keeps operands, result and settings of the operator that was wrong in its evidence, in
the folder `operator`. This compares the bits of each repetition with one another, the result with float64, and with the
result that was kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asd.cli.shared.policy_options import number
from asd.cli.shared.progress import Bar
from asd.cli.shared.quiet import quiet
from asd.errors import ConfigError, StateError, UnsupportedError
from asd.records import plain

if TYPE_CHECKING:
    from asd.operators.stress import Recheck

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
Examples:
  asd recheck asd_run/evidence/run1/rank0-step7 --device Ascend:3            a minute of it
  asd recheck asd_run/evidence/run1/rank0-step7 --device Ascend:3 --hours 2
  asd recheck asd_run --device CPU:0 --seconds 5 --json                      every call that the run kept, in turn

BUNDLE is the evidence of one step, or a folder with several. `asd run_ut -api_info BUNDLE/operator/dump.json` compares
the call with float64 in more detail; `asd stress --evidence` has such calls among its work.

exit codes: 0 each was right each time, 1 the device computed wrongly or not the same each time, 2 wrong usage, no such
device or nothing kept, 3 a call can't be computed here, 130 interrupted."""

_RIGHT, _WRONG, _NOT_TESTED = 0, 1, 3
_LONGEST = 7 * 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd recheck`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("bundle", type=Path, metavar="BUNDLE", help="evidence of a step, or a folder with several")
    parser.add_argument("--device", default="CPU:0", metavar="D", help="for example Ascend:3 (default: %(default)s)")
    time = parser.add_mutually_exclusive_group()
    time.add_argument("--seconds", default="60", metavar="S", help="for each call, from 0 on (default: %(default)s)")
    time.add_argument("--hours", metavar="H", help="the same in hours")
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    """Computes every call that was kept; 0 when each was right each time."""
    if args.hours is not None:
        seconds = 3600 * number("--hours", args.hours, 0, _LONGEST / 3600)
    else:
        seconds = number("--seconds", args.seconds, 0, _LONGEST)
    try:
        with tempfile.TemporaryDirectory() as folder:
            quiet(Path(folder), is_temporary=True)
            from asd.operators.stress import kept_calls, use_device

            dumps = kept_calls(args.bundle)
            if not dumps:
                raise ConfigError("BUNDLE", str(args.bundle), "no call of a wrong operator was kept there")
            device = use_device(args.device, "pynative")
            found = [_again(dump, seconds, bar=not args.json) for dump in dumps]
    except ModuleNotFoundError as error:
        return _complain(f"{error.name} is needed; pip install 'mindspore-asd[mindspore]' brings it.")
    if args.json:
        print(json.dumps([_facts(device, dump, each) for dump, each in zip(dumps, found, strict=True)], indent=1))
    else:
        for dump, each in zip(dumps, found, strict=True):
            print("\n".join(_lines(device, dump, each)))
    codes = [_NOT_TESTED if isinstance(each, str) else _WRONG if each.failed else _RIGHT for each in found]
    return max(codes, key=(_RIGHT, _NOT_TESTED, _WRONG).index)


def _again(dump: Path, seconds: float, *, bar: bool) -> Recheck | str:
    """What came of one call, or why nothing did."""
    from asd.operators.stress import KeptCall, recheck

    try:
        call = KeptCall(dump)
        shown = Bar(call.name, max(seconds, 1.0)) if bar else None
        result = recheck(
            call, seconds,
            (lambda done, count: shown.show(min(done, seconds), f"{count} times")) if shown else lambda *_: None,
        )  # fmt: skip
        if shown is not None:
            shown.end(f"{result.times} times")
    except (UnsupportedError, StateError, OSError) as error:
        return str(error)
    return result


def _lines(device: str, dump: Path, found: Recheck | str) -> list[str]:
    if isinstance(found, str):
        return [f"{dump}: {found}"]
    from asd.operators.stress import first_difference

    lines = [
        f"{found.name} of {dump.parent.parent}",
        f"  computed {found.times} times in {found.seconds:.1f} s on {device}",
    ]
    if found.otherwise:
        lines.append(
            f"  {found.otherwise} times the bits were others than usual: this device does not compute it reliably"
        )
    else:
        lines.append("  the bits were the same each time")
    right = found.answer.right
    verdict = "right by float64" if right else "wrong by float64" if right is False else "not compared with float64"
    lines.append(f"  the usual result is {verdict}" + (f": {found.answer.words}" if found.answer.words else ""))
    count, at = first_difference(found.kept, found.usual)
    if count:
        kept, now = (f"{float(each[at])!r} ({_hex(each[at])})" for each in (found.kept, found.usual))
        lines.append(
            f"  the kept result differs in {count} of {found.kept.size} elements, first at {list(at)}: "
            f"{kept} was kept, now it is {now}"
        )
    else:
        lines.append("  the kept result has the same bits: what was wrong comes again here")
    return lines


def _facts(device: str, dump: Path, found: Recheck | str) -> dict[str, Any]:
    if isinstance(found, str):
        return {"dump": str(dump), "device": device, "problem": found}
    from asd.operators.stress import first_difference

    count, at = first_difference(found.kept, found.usual)
    return {
        "dump": str(dump), "device": device, "call": found.name, "times": found.times, "otherwise": found.otherwise,
        "seconds": round(found.seconds, 3), "right": found.answer.right, "why": found.answer.words,
        "elements": found.kept.size, "kept_differs": count, "first": list(at),
        "kept": plain(float(found.kept[at])) if count else None,
        "now": plain(float(found.usual[at])) if count else None,
        "failed": found.failed,
    }  # fmt: skip


def _hex(value: Any) -> str:
    return f"0x{int(value.view(f'u{value.dtype.itemsize}')):0{2 * value.dtype.itemsize}x}"


def _complain(sentence: str) -> int:
    print(f"asd recheck: {sentence}", file=sys.stderr)
    return _NOT_TESTED
