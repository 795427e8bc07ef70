"""Runs a training command with detection on, without a change of its code.

With `--ranks` it also starts the training's processes through MindSpore's launcher, watches them, isolates a device
that computes wrongly, and restarts them from the last good saved checkpoint.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from asd.cli.shared.options import number, whole_number
from asd.cli.shared.progress import write_line
from asd.config import Config
from asd.errors import ConfigError
from asd.settings.options import with_options

_EXAMPLES = """\
Examples:
  asd run python train.py
  asd run -- msrun --worker_num=2 --local_worker_num=2 train.py
  ASD_ON_ANOMALY=skip asd run python train.py
  asd run --ranks 2 --spares 1 -- python train.py

Detection is on unless NPU_ASD_ENABLE is set otherwise. It covers every process that the command starts, waits for the
import of MindSpore, and checks trainings through Model.train, mindformers' Trainer or TrainOneStepCell. If the package
is installed in the Python of the training, NPU_ASD_ENABLE=1 python train.py does the same without this command.

With --ranks the environment of the training has ASD_DEVICE, the number of its device, and ASD_RESUME_FROM, the file to
resume from, which `asd.operators.resume.checkpoint_to_resume(folder)` returns too. The state of the job is in
ASD_RUN_DIR/supervisor.json, the output of the ranks in ASD_RUN_DIR/logs. The same command in the same folder continues
a job that failed, without isolated devices, also under another number at the end of ASD_RUN. A new job begins at step
1, or from the file ASD_RESUME_FROM if that is set. Devices are isolated by the rules of `asd handler`; `asd devices`
lists them, and `asd devices release HOST DEVICE` releases one.

A job hangs if no rank makes a step for the time of --hang-timeout and for three times its longest step; until the first
step printed lines count too. SIGTERM, SIGHUP and Ctrl-C end it: the ranks get SIGTERM and have 30 s to save, until a
second signal. SIGUSR1 and SIGUSR2 are passed on to the ranks; a job that ends in the hour after one is continued.

exit codes: those of the command; 2 for a wrong setting or a command that cannot be started.
With --ranks: 0 done, 1 the job failed, 2 wrong usage, 16 too few devices are left: resume elsewhere, 17 the cause is
software or data, is unknown, or too many devices look faulty, and no device was isolated, 130 interrupted, 143 ended
by SIGTERM or SIGHUP."""

_COUNT = whole_number(0, 100_000)
_OPTIONS = ("spares", "devices", "max_restarts", "hang_timeout")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd run`."""
    parser.epilog = _EXAMPLES
    job = parser.add_argument_group("a job of several processes")

    def add(name: str, kind: Callable[[str], Any], metavar: str, words: str) -> None:
        job.add_argument(name, type=kind, metavar=metavar, help=words)

    add("--ranks", whole_number(1, 100_000), "N", "start N processes through msrun, and watch them")
    add("--spares", _COUNT, "M", "spare devices (default 0)")
    add("--devices", str, "0,1,...", "all devices, spares last (default: ASCEND_RT_VISIBLE_DEVICES, else 0 to N+M-1)")
    add("--max-restarts", _COUNT, "K", "restarts after a crash or a hang (default 3)")
    add("--hang-timeout", number(0, 1e7), "SECONDS", "restart after this time without a step (default 1800)")
    parser.add_argument("command_line", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="command to run")


def run(args: argparse.Namespace) -> int:
    """Becomes the command, so it returns only if that cannot start; with `--ranks` watches the job to its end."""
    command = args.command_line[1:] if args.command_line[:1] == ["--"] else args.command_line
    if not command:
        raise ConfigError("COMMAND", "", "pass a command, for example `asd run python train.py`")
    environ = {**os.environ, "NPU_ASD_ENABLE": os.environ.get("NPU_ASD_ENABLE") or "1"}
    config = Config.from_env(environ)  # a mistyped setting ends here, not in one of a thousand workers
    bootstrap = Path(__file__).resolve().parents[2] / "bootstrap"
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(bootstrap), environ.get("PYTHONPATH")]))
    if args.ranks is not None:
        return _supervise(args, command, environ, config)
    for option in _OPTIONS:
        if getattr(args, option) is not None:
            raise ConfigError(f"--{option.replace('_', '-')}", getattr(args, option), "pass it with --ranks")
    program = shutil.which(command[0])
    if program is None:
        raise ConfigError("COMMAND", command[0], "it must be a program in PATH, or the path of an executable file")
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; a shell cannot undo that
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execve(program, command, environ)
    except OSError as error:
        raise ConfigError("COMMAND", program, f"it must be a program that can be started ({error.strerror})") from error


def _supervise(args: argparse.Namespace, command: Sequence[str], environ: Mapping[str, str], config: Config) -> int:
    from asd.cli.shared.isolation import IsolationLog
    from asd.origin import mounted_chips
    from asd.supervisor.job import Job, Settings
    from asd.supervisor.processes import find_launcher, resolve

    mounted = mounted_chips()
    devices = [mounted[each] if each < len(mounted) else each for each in all_devices(args, environ)]
    resolved = resolve(command, environ.get("PATH", os.defpath))
    find_launcher(resolved[0], environ.get("PATH", os.defpath))
    # A decision about a device needs a verdict; a resume needs a checkpoint that is known to be whole and clean.
    environ = with_options(environ, replay="1", manifest="1")
    settings = Settings(
        command=resolved,
        environ=environ,
        config=config,
        devices=devices,
        ranks=args.ranks,
        max_restarts=3 if args.max_restarts is None else args.max_restarts,
        hang_seconds=1800.0 if args.hang_timeout is None else args.hang_timeout,
    )
    log = IsolationLog(Path(config.run_dir))
    return Job(settings, say=_say, tell=_tell, publish=log, published=log.has).run()


def all_devices(args: argparse.Namespace, environ: Mapping[str, str]) -> list[int]:
    """Returns the numbers of all devices of a job, the spares last; among the visible ones if only some are."""
    text = args.devices or environ.get("ASCEND_RT_VISIBLE_DEVICES") or ""
    wanted = args.ranks + (args.spares or 0)
    if not text:
        return list(range(wanted))
    name = "--devices" if args.devices else "ASCEND_RT_VISIBLE_DEVICES"
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words) or len(set(map(int, words))) < len(words):
        raise ConfigError(name, text, "pass different numbers of devices, such as 0,1,2")
    devices = list(map(int, words))
    if len(devices) < wanted:
        raise ConfigError(name, text, f"pass at least {wanted} devices, for --ranks and --spares together")
    return devices if args.spares is None and args.devices else devices[:wanted]


def _say(sentence: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # its reader has gone; the training goes on
        write_line(sys.stderr, f"asd: {sentence}")


def _tell(rank: int, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        write_line(sys.stdout, f"rank{rank}: {line}")
