"""Runs a program as the ranks of a job under msrun, in a folder of its own."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def ranks_of(
    program: Path, arguments: Sequence[object], count: int, marker: str, timeout: float
) -> Iterator[tuple[list[dict[str, Any]], Path]]:
    """What each rank told, by rank, and the folder, which has `asd_run` and is gone afterwards.

    Args:
        program: What a rank runs. It prints one line: `marker`, a space and a JSON object.
        arguments: Of the program.
        count: Of ranks.
        marker: See `program`.
        timeout: In seconds.

    Raises:
        SystemExit: A rank did not come to its end.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name:
        command = [
            sys.executable,
            "-m",
            "mindspore.parallel.cluster.run",
            f"--worker_num={count}",
            f"--local_worker_num={count}",
            f"--master_port={port}",
            "--log_dir=logs",
            "--join=True",
            str(program),
            *map(str, arguments),
        ]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environ = {**os.environ, "GLOG_v": "3", "PATH": path, "LOCAL_DEFAULT_PATH": name, "ASD_RUN_DIR": "asd_run"}
        done = subprocess.run(
            command, cwd=name, env=environ, capture_output=True, text=True, timeout=timeout, check=False
        )
        logs = [Path(name, "logs", f"worker_{rank}.log").read_text() for rank in range(count)]
        lines = [line for log in logs for line in log.splitlines() if line.startswith(f"{marker} ")]
        if len(lines) < count:
            what = " ".join(map(str, arguments))
            raise SystemExit(f"{what}: {count - len(lines)} ranks did not end ({done.returncode}): {logs[0][-2000:]}")
        yield [json.loads(line.partition(" ")[2]) for line in lines], Path(name)
