"""The command line and the environment of one attempt, for MindSpore's launcher `msrun`."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from asd.errors import ConfigError, UnsupportedError
from asd.supervisor.processes.tree import Launch

__all__ = ["find_launcher", "launch", "resolve"]

_WORKER = Path(__file__).with_name("worker.py")
_NO_RANK = "9999"  # the launcher is to show the output of none: the supervisor does it without losing the end


def resolve(command: Sequence[str], path: str) -> list[str]:
    """`command` with the program's whole name; Python is put before a script, as `msrun` does.

    Raises:
        ConfigError: There is no such program.
    """
    words = list(command)
    if words[0].endswith(".py") and not os.access(words[0], os.X_OK):
        words.insert(0, "python")
    program = shutil.which(words[0], path=path)
    if program is None:
        raise ConfigError("COMMAND", words[0], "valid is a program in PATH, or the path of an executable file")
    return [os.path.abspath(program), *words[1:]]  # a link in a virtual environment stays one


def find_launcher(program: str, path: str) -> list[str]:
    """MindSpore's launcher: beside `program`, or else in `path`.

    Raises:
        UnsupportedError: There is none.
    """
    for places in (str(Path(program).parent), path, str(Path(sys.executable).parent)):
        found = shutil.which("msrun", path=places)
        if found is not None:
            return [found]
    raise UnsupportedError("`asd run --ranks` needs MindSpore's launcher msrun in PATH; it comes with mindspore.")


def launch(
    command: Sequence[str], environ: Mapping[str, str], *, devices: Sequence[int], run: str, resume: tuple[str, int],
    folder: Path,
) -> Launch:  # fmt: skip
    """What to start for one attempt.

    Args:
        command: The training's command line, resolved.
        environ: The environment it would have without a supervisor.
        devices: The device of each rank.
        run: Name of the attempt.
        resume: Checkpoint file to go on from and its last step; an empty name and 0 for a training that begins.
        folder: Where the logs go.

    Raises:
        UnsupportedError: There is no launcher.
    """
    numbers = ",".join(map(str, devices))
    path = environ.get("PATH", os.defpath)
    if shutil.which("python", path=path) is None:  # the launcher runs its scripts with that one
        path = os.pathsep.join([str(Path(sys.executable).parent), path])
    ranks = len(devices)
    words = [
        *find_launcher(command[0], path), f"--worker_num={ranks}", f"--local_worker_num={ranks}",
        "--master_addr=127.0.0.1", f"--master_port={_free_port()}", f"--log_dir={folder}", "--join=True",
        f"--tail_worker_log={_NO_RANK}", str(_WORKER), str(folder), numbers, *command,
    ]  # fmt: skip
    settings = {
        "PATH": path,
        "ASD_RUN": run,
        "ASD_DEVICES": numbers,
        "ASD_RESUME_FROM": resume[0],
        "ASD_RESUME_STEP": str(resume[1]),
        "ASCEND_RT_VISIBLE_DEVICES": numbers,
    }
    return Launch(words, {**environ, **settings}, folder)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
