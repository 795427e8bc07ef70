"""`asd selftest --seconds`: runs known-answer tests for a time, and compares bit for bit."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from asd.cli.shared.machine import machine_of
from asd.cli.shared.progress import Bar
from asd.cli.shared.stopping import quiet
from asd.cli.train.selftest_forms import as_json
from asd.config import Config
from asd.errors import ConfigError
from asd.exporters.run_files.event_log import EventLog
from asd.exporters.run_files.status_file import StatusFiles
from asd.rundir.folders import RunFolders
from asd.rundir.names import stress_file

if TYPE_CHECKING:
    from asd.operators.selftest.known_answers import StressOutcome

_NOT_TESTED = 3
_SILENT_SECONDS = 60.0  # a training without a status for so long has ended


def run_work(args: argparse.Namespace, device: str) -> int:
    """Tests the device; returns 0 without a mistake, 1 with one, 3 if it could not be tested."""
    config = Config.of_process()
    is_told = "ASD_RUN_DIR" in os.environ or Path(config.run_dir).is_dir()
    run_dir = args.run_dir or (Path(config.run_dir) if is_told else None)
    mode = "pynative" if args.mode == "pynative" else "graph"
    try:
        quiet()
        from asd.operators.selftest.known_answers import use_device

        device = use_device(device, mode)
        if user := user_of(run_dir, device, time.time()):
            return _complain(f"{device} is not tested while {user} works on it.")
        outcome = _test(args, f"{device}, {mode}")
    except ModuleNotFoundError as error:
        return _complain(f"the test needs {error.name}; install it with the extra: mindspore-asd[mindspore].")
    except ConfigError:
        raise
    except Exception as error:  # MindSpore's own too: Python would end with the exit code of a faulty device
        return _complain(f"{device} could not be tested: {error}")
    return _finish(args, config, device, outcome, run_dir)


def _test(args: argparse.Namespace, label: str) -> StressOutcome:
    from asd.operators.selftest.known_answers import stress

    bar = Bar(label, args.seconds, silent=args.json)
    show = lambda done, count: bar.show(done, f"{done:.0f}/{args.seconds:g} s, {count} repetitions")  # noqa: E731
    outcome = stress(args.seconds, tell=show)
    bar.end(f"{sum(outcome.repetitions.values())} repetitions")
    return outcome


def _finish(args: argparse.Namespace, config: Config, device: str, outcome: StressOutcome, run_dir: Path | None) -> int:
    """Prints the result, and writes the event."""
    event, code = None, int(outcome.failed)
    if not outcome.failed and outcome.vendor_code not in (None, 0):
        code = _NOT_TESTED
    elif run_dir is not None:
        event = outcome.event(config, device)
        try:
            EventLog(stress_file(run_dir))(event)
        except OSError as error:
            code, event = code or _NOT_TESTED, None
            _complain(f"{error.filename}: {error.strerror}; the event is not written.")
    if args.json:
        facts = as_json(outcome.findings("pynative" if args.mode == "pynative" else "graph"), machine_of(device))
        told = {"seconds": round(outcome.seconds, 3), "event": event.id if event is not None else None}
        print(json.dumps({**facts, **told}, indent=1))
    else:
        print(outcome.sentence(device))
        if event is not None and run_dir is not None:
            print(f"Event {event.id} is in {stress_file(run_dir)}.")
    return code


def user_of(run_dir: Path | None, device: str, now: float) -> str:
    """Returns the training that uses `device` of this host now, by statuses in `run_dir` or below; empty for none."""
    host, folders = Config.of_process().name_of_node(), RunFolders([run_dir] if run_dir is not None else [])
    for status in StatusFiles(folders.look(), folders.status_files).poll():
        is_its_own = (status.host, status.device) == (host, device)
        if is_its_own and status.active and now - status.written < _SILENT_SECONDS:
            return f"rank {status.rank} of {status.run}"
    return ""


def _complain(sentence: str) -> int:
    print(f"asd selftest: {sentence}", file=sys.stderr)
    return _NOT_TESTED
