"""`asd selftest --seconds`: runs known-answer tests for a time, and compares bit for bit."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asd.cli.shared.machine import machine_of
from asd.cli.shared.options import number
from asd.cli.shared.progress import Bar
from asd.cli.shared.stopping import quiet
from asd.cli.train.selftest_forms import as_json
from asd.config import Config
from asd.diagnosis.selftest import ABSENT, OK, WRONG, Finding
from asd.errors import UnsupportedError
from asd.event import Event
from asd.exporters.run_files.event_log import EventLog
from asd.exporters.run_files.status_file import StatusFiles
from asd.origin import Origin
from asd.rundir.folders import RunFolders
from asd.rundir.names import stress_file
from asd.verdict import Level

if TYPE_CHECKING:
    from asd.operators.selftest.known_answers import StressOutcome

_CLEAN, _WRONG, _NOT_TESTED = 0, 1, 3
_VENDOR_FOUND = 2
_LONGEST = 7 * 86400.0
_SILENT_SECONDS = 60.0  # a training without a status for so long has ended
_AREA = "known answers"


def add_work_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of known-answer tests."""
    work = parser.add_argument_group("work whose answers are known")
    work.add_argument("--seconds", type=number(0, _LONGEST), metavar="S", help="repeat it for so long, from 0 on")
    work.add_argument("--run-dir", type=Path, metavar="D", help="folder of the run that is told of the result")


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
        return _complain(f"the test needs {error.name}; pip install '.[mindspore]' in the checkout brings it.")
    except (UnsupportedError, OSError) as error:  # `main` would turn an OSError into the exit code of a faulty device
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
    failed = outcome.finding is not None or outcome.vendor_code == _VENDOR_FOUND
    sentence = _sentence(device, outcome)
    event = None
    code = _WRONG if failed else _CLEAN
    if not failed and outcome.vendor_code not in (None, 0):
        code = _NOT_TESTED
    elif run_dir is not None:
        event = _event(config, device, outcome, sentence, failed=failed)
        try:
            EventLog(stress_file(run_dir))(event)
        except OSError as error:
            code, event = code or _NOT_TESTED, None
            _complain(f"{error.filename}: {error.strerror}; the event is not written.")
    if args.json:
        print(json.dumps(_report(args, device, outcome, event), indent=1))
    else:
        print(sentence)
        if event is not None and run_dir is not None:
            print(f"Event {event.id} is in {stress_file(run_dir)}.")
    return code


def _sentence(device: str, outcome: StressOutcome) -> str:
    if outcome.finding is not None:
        return f"{device} computed wrongly: {outcome.finding.sentence()}."
    done = ", ".join(f"{count} times {name}" for name, count in outcome.repetitions.items())
    if outcome.absent:
        done += f"; left out: {', '.join(outcome.absent)}"
    if outcome.vendor_code is None:
        return f"{device} made no mistake in {outcome.seconds:.1f} s: {done}."
    from asd.operators.rerun.vendor import STRESS_CODES

    told = STRESS_CODES.get(outcome.vendor_code, "returned what is not documented")
    return (
        f"{device} made no mistake in {outcome.seconds:.1f} s: {done}; MindSpore's own stress test {told} "
        f"(code {outcome.vendor_code})."
    )


def _event(config: Config, device: str, outcome: StressOutcome, reason: str, *, failed: bool) -> Event:
    finding, now = outcome.finding, time.time()
    return Event(
        origin=Origin(config.name_of_run(), -1, config.name_of_node(), device),
        step=0,
        checkpoint=f"{finding.workload}.{finding.output}" if finding is not None else "",
        value=float(finding.wrong) if finding is not None else float(failed),
        limits=(0.0,),
        level=Level.ERROR if failed else Level.NORMAL,
        kind="stress",
        rule="known_answer",
        feature="wrong_elements",
        reason=reason,
        refused=False,
        time=now,
        verdict="persistent" if failed else "",
        key=f"{now!r} {os.getpid()}",  # each test is a separate event
    )


def _report(args: argparse.Namespace, device: str, outcome: StressOutcome, event: Event | None) -> dict[str, Any]:
    """Returns the same form as a self-test, with the time and the event added."""
    wrong, mode = outcome.finding, "pynative" if args.mode == "pynative" else "graph"
    found = [
        Finding(_AREA, name, WRONG, mode, detail=wrong.sentence())
        if wrong is not None and wrong.workload == name
        else Finding(_AREA, name, OK, mode, detail=f"{count} times")
        for name, count in outcome.repetitions.items()
    ]
    found += [Finding(_AREA, name, ABSENT, mode, detail=why) for name, why in outcome.absent.items()]
    if outcome.vendor_code is not None:
        state = {0: OK, _VENDOR_FOUND: WRONG}.get(outcome.vendor_code, ABSENT)
        found.append(Finding(_AREA, "MindSpore's own", state, mode, detail=f"code {outcome.vendor_code}"))
    told = {"seconds": round(outcome.seconds, 3), "event": event.id if event is not None else None}
    return {**as_json(found, machine_of(device)), **told}


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
