"""Runs a training command with detection on; the command and its code stay as they are."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from asd.config import Config
from asd.errors import ConfigError

__all__ = ["add_arguments", "run"]

_EXAMPLES = """\
Examples:
  asd run python train.py
  asd run -- msrun --worker_num=2 --local_worker_num=2 train.py
  ASD_ON_ANOMALY=skip asd run python train.py

Detection is on unless NPU_ASD_ENABLE says otherwise. It reaches every process that the command starts, waits for the
import of MindSpore, and checks what trains through Model.train, mindformers' Trainer or TrainOneStepCell.

exit codes: those of the command; 2 for a wrong setting or a command that can't be started."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `asd run`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("command_line", nargs=argparse.REMAINDER, metavar="COMMAND ...", help="what to run")


def run(args: argparse.Namespace) -> int:
    """Becomes the command; returns only when it can't be started."""
    command = args.command_line[1:] if args.command_line[:1] == ["--"] else args.command_line
    if not command:
        raise ConfigError("COMMAND", "", "valid is a command, for example `asd run python train.py`")
    environ = {"NPU_ASD_ENABLE": "1", **os.environ}
    config = Config.from_env(environ)  # a mistyped setting ends here, not in one of a thousand workers
    environ["ASD_RUN"] = config.name_of_run()  # one name for all ranks that the command starts
    program = shutil.which(command[0])
    if program is None:
        raise ConfigError("COMMAND", command[0], "valid is a program that can be found in PATH")
    bootstrap = Path(__file__).resolve().parents[1] / "bootstrap"
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(bootstrap), environ.get("PYTHONPATH")]))
    try:
        os.execve(program, command, environ)
    except OSError as error:
        raise ConfigError("COMMAND", program, f"valid is a program that can be started ({error.strerror})") from error
