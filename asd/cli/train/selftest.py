"""Tests a device and this installation, or with --seconds the device alone, by work whose answers are known.

Every operator, tap, statistic, checksum, hash, gate, refusal, second look and replay is compared with NumPy, in graph
mode and PyNative, in each type the device has, with denormal numbers, inf and NaN. It needs no
model, no data and no network. With --ranks several processes train together, and the last one computes wrongly.

With --seconds it repeats the work that a training's device is tested by between steps, on larger tensors: products,
convolutions and the vector operators that trainings use. Each must come to the same bits each time, and to what float64
says. On Ascend MindSpore's own stress test follows. The result is an event: `asd handler` isolates a device that
failed, and the strikes of one that passed count a little less.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from asd.cli.shared.machine import machine_of
from asd.cli.shared.options import whole_number
from asd.cli.shared.progress import Bar
from asd.cli.train.known_answers import add_work_arguments, run_work
from asd.cli.train.selftest_forms import as_json, as_table
from asd.errors import ConfigError
from asd.rules.diagnosis.selftest import BEGUN, WRONG, Finding, read_line

__all__ = ["add_arguments", "run"]

_PARTS = ("operators", "measuring", "hashes", "gate", "repeating")
_MODES = ("graph", "pynative")
_OF_PARTS = {"only": None, "ranks": 0}
_OF_WORK = {"seed": 0, "run_dir": None}
"""Options that only one of the two tests has, and their defaults."""
_PATIENCE = 1200.0  # seconds for a mode, or a job of ranks, on a machine that is busy with other work too
_CHILD = ("-m", "asd.operators.selftest")
_EXAMPLES = f"""\
Examples:
  asd selftest                                 this machine's device, both modes
  asd selftest --device Ascend:3 --json        device 3, as JSON; put it into a bug report
  asd selftest --only gate --mode graph        one part, in one mode
  asd selftest --ranks 8                       eight processes too, one of which computes wrongly
  asd selftest --device Ascend:3 --seconds 60 --run-dir asd_run   a minute of work with known answers on device 3

The parts are {", ".join(_PARTS)}.
A place where MindSpore lacks a type on this device is `absent` in the table, and no mistake.

With --seconds the event goes to RUN_DIR/events-stress.jsonl where --run-dir or ASD_RUN_DIR is given, or the default
folder exists.

exit codes: 0 all is right, 1 something is wrong, 2 wrong usage or no such device, 3 with --seconds: the device could
not be tested, or its event not be written; 130 interrupted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd selftest`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--device", default="", metavar="D", help="such as Ascend:3 (default: Ascend if it is there)")
    parser.add_argument("--mode", choices=("both", *_MODES), default="both", help="default: %(default)s")
    parser.add_argument("--only", choices=_PARTS, action="append", help="a part to test, may be repeated; default: all")
    parser.add_argument(
        "--ranks", type=whole_number(0, 1024), default=0, help="so many processes together as well, from 2 on"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    add_work_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Tests the device; 0 when nothing is wrong."""
    device = args.device or ("Ascend" if Path("/dev/davinci_manager").exists() else "CPU")
    _check_options(args)
    if args.seconds is not None:
        return run_work(args, device)
    if find_spec("mindspore") is None:
        raise ModuleNotFoundError("mindspore", name="mindspore")
    modes = _MODES if args.mode == "both" else (args.mode,)
    parts = [part for part in _PARTS if part in (args.only or _PARTS)]
    findings: list[Finding] = []
    for mode, label, command in _jobs(modes, device, parts, args.ranks):
        bar = Bar(label, 1, silent=args.json)
        told, code, complaint = _follow(command, mode)
        findings += told
        if code == 2 and not told:
            print(complaint, file=sys.stderr)
            return 2
        bar.end(f"{len(told)} checks")
    machine = machine_of(device)
    if args.json:
        print(json.dumps(as_json(findings, machine), indent=1))
    else:
        print(as_table(findings, machine))
    return int(any(each.state == WRONG for each in findings))


def _check_options(args: argparse.Namespace) -> None:
    """Refuses options of the test that is not made.

    Raises:
        ConfigError: There is one.
    """
    others = _OF_PARTS if args.seconds is not None else _OF_WORK
    for option, usual in others.items():
        if getattr(args, option) != usual:
            valid = f"it is valid {'without' if args.seconds is not None else 'with'} --seconds only"
            raise ConfigError(f"--{option.replace('_', '-')}", getattr(args, option), valid)


def _jobs(modes: Sequence[str], device: str, parts: Sequence[str], ranks: int) -> Iterator[tuple[str, str, list[str]]]:
    """Mode, label and command of each child."""
    for mode in modes:
        yield mode, f"{device}, {mode}", [sys.executable, *_CHILD, mode, device, *parts]
        if ranks > 1:
            yield mode, f"{device}, {mode}, {ranks} ranks", _launcher(mode, device, ranks)


def _launcher(mode: str, device: str, ranks: int) -> list[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    package = find_spec("asd.operators")
    folder = next(iter((package and package.submodule_search_locations) or ()))
    program = str(Path(folder, "selftest", "ranks.py"))
    return [
        sys.executable,
        "-m",
        "mindspore.parallel.cluster.run",
        f"--worker_num={ranks}",
        f"--local_worker_num={ranks}",
        f"--master_port={port}",
        "--log_dir=logs",
        "--join=True",
        program,
        mode,
        device.partition(":")[0],
    ]


def _follow(command: list[str], mode: str) -> tuple[list[Finding], int, str]:
    """What a child finds, how it ends, and its last words on standard error."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NPU_ASD_", "ASD_"))}
    environ |= {"NPU_ASD_ENABLE": "1", "GLOG_v": "3"}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found: list[Finding] = []
    open_ones: dict[int, Finding] = {}
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder, "stderr")
        with errors.open("wb") as error_file:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environ,
                stdout=subprocess.PIPE,
                stderr=error_file,
                stdin=subprocess.DEVNULL,
                text=True,
                errors="replace",
            )
        try:
            for line in _lines(process, folder):
                finding = read_line(line)
                if finding is None:
                    continue
                if finding.state == BEGUN:
                    open_ones[finding.rank] = finding
                else:
                    open_ones.pop(finding.rank, None)
                    found.append(finding)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
        words = errors.read_text(errors="replace").strip().splitlines()
    if process.returncode != 0 and not (process.returncode == 2 and not found):
        found.append(_unfinished(process.returncode, mode, list(open_ones.values()), words))
    return found, process.returncode, words[-1] if words else ""


def _lines(process: subprocess.Popen[str], folder: str) -> list[str]:
    """All that the child and its ranks say; it is ended when it takes too long."""
    try:
        out, _ = process.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, _ = process.communicate()
    logs = sorted(Path(folder, "logs").glob("worker_*.log"))
    return [*out.splitlines(), *(line for log in logs for line in log.read_text(errors="replace").splitlines())]


def _unfinished(code: int, mode: str, open_ones: list[Finding], words: list[str]) -> Finding:
    where = f" during {open_ones[0].area}: {open_ones[0].name} {open_ones[0].dtype}".rstrip() if open_ones else ""
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    last = f"; its last words: {words[-1][:200]}" if words else ""
    return Finding("process", "runs to its end", WRONG, mode, detail=f"the process {how}{where}{last}")
