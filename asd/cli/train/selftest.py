"""Tests a device and this installation, or with --seconds the device alone, by known-answer tests.

Every operator, tap, statistic, checksum, hash, gate, refusal, confirmation and replay is compared with NumPy, in graph
mode and PyNative, in each type of the device, with denormal numbers, inf and NaN. It needs no model, no data and no
network.

With --seconds it repeats the known-answer tests that run between the steps of a training, on larger tensors: products,
convolutions and the vector operators that trainings use. Each result must have the same bits each time and agree with
float64. On Ascend MindSpore's own stress test follows. The result is an event: `asd handler` isolates a device that
failed; a device that passed keeps its strikes.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from asd.cli.shared.machine import machine_of
from asd.cli.shared.options import number
from asd.cli.shared.progress import Bar
from asd.cli.train.known_answers import run_work
from asd.cli.train.selftest_forms import as_json, as_text
from asd.diagnosis.selftest import BEGUN, WRONG, Finding, read_line
from asd.errors import ConfigError

_PARTS = ("operators", "measuring", "hashes", "gate", "repeating")
_MODES = ("graph", "pynative")
_LONGEST = 7 * 86400.0
_CHILD = ("-m", "asd.operators.selftest")
_PATIENCE = 1200.0  # seconds for a mode, on a machine that is busy with other work too
_EXAMPLES = f"""\
Examples:
  asd selftest                                 this machine's device, both modes
  asd selftest --device Ascend:3 --json        device 3, as JSON, for a bug report
  asd selftest --only gate --mode graph        one part, in one mode
  asd selftest --device Ascend:3 --seconds 60 --run-dir asd_run   a minute of known-answer tests on device 3

The parts are {", ".join(_PARTS)}.
A type that MindSpore does not have on this device is `absent`, which is not an error.

With --seconds the event is written to RUN_DIR/events-stress.jsonl if --run-dir or ASD_RUN_DIR is given, or the default
folder exists.

exit codes: 0 all passed, 1 a test failed, 2 wrong usage or no such device, 3 with --seconds: the device could not be
tested, or its event not be written; 130 interrupted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd selftest`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--device", default="", metavar="D", help="for example Ascend:3 (default: Ascend if present)")
    parser.add_argument("--mode", choices=("both", *_MODES), default="both", help="default: %(default)s")
    parser.add_argument("--only", choices=_PARTS, action="append", help="a part to test, may be repeated; default: all")
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    work = parser.add_argument_group("known-answer tests")
    work.add_argument("--seconds", type=number(0, _LONGEST), metavar="S", help="repeat them for this time, from 0 on")
    work.add_argument("--run-dir", type=Path, metavar="D", help="folder of the run that gets the event")


def run(args: argparse.Namespace) -> int:
    """Tests the device; returns 0 when nothing is wrong, else 1, or 2 without such a device."""
    device = args.device or ("Ascend" if Path("/dev/davinci_manager").exists() else "CPU")
    if args.seconds is not None and args.only:
        raise ConfigError("--only", args.only, "pass it without --seconds")
    if args.seconds is None and args.run_dir is not None:
        raise ConfigError("--run-dir", str(args.run_dir), "pass it with --seconds")
    if args.seconds is not None:
        return run_work(args, device)
    if find_spec("mindspore") is None:
        raise ModuleNotFoundError("mindspore", name="mindspore")
    modes = _MODES if args.mode == "both" else (args.mode,)
    parts = [part for part in _PARTS if part in (args.only or _PARTS)]
    findings: list[Finding] = []
    for mode in modes:
        bar = Bar(f"{device}, {mode}", 1, silent=args.json)
        told, code, complaint = _run_child([device, *parts], mode)
        findings += told
        if code == 2 and not told:
            print(complaint, file=sys.stderr)
            return 2
        bar.end(f"{len(told)} checks")
    machine = machine_of(device)
    if args.json:
        print(json.dumps(as_json(findings, machine), indent=1))
    else:
        print(as_text(findings, machine))
    return int(any(each.state == WRONG for each in findings))


def _run_child(arguments: list[str], mode: str) -> tuple[list[Finding], int, str]:
    """Runs a child with this import path; returns its findings, its exit code, and its last line on standard error."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NPU_ASD_", "ASD_"))}
    environ |= {"NPU_ASD_ENABLE": "1", "GLOG_v": "3", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [sys.executable, *_CHILD, mode, *arguments],
                cwd=folder,
                env=environ,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=_PATIENCE,
                check=False,
            )
            code, out, errors = done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as error:  # it was killed
            code, out, errors = -signal.SIGKILL, error.stdout or b"", error.stderr or b""
    told = [each for line in out.decode(errors="replace").splitlines() if (each := read_line(line)) is not None]
    found, words = [each for each in told if each.state != BEGUN], errors.decode(errors="replace").strip().splitlines()
    if code != 0 and not (code == 2 and not found):
        found.append(_unfinished(code, mode, told[-1] if told and told[-1].state == BEGUN else None, words))
    return found, code, words[-1] if words else ""


def _unfinished(code: int, mode: str, begun: Finding | None, words: list[str]) -> Finding:
    where = f" during {begun.area}: {begun.name} {begun.dtype}".rstrip() if begun is not None else ""
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    last = f"; its last words: {words[-1][:200]}" if words else ""
    return Finding("process", "runs to its end", WRONG, mode, detail=f"the process {how}{where}{last}")
