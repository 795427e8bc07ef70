"""The documents: every block of code in them is run or parsed, and every figure is what the results say."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "docs" / "build")]

from markdown import blocks  # noqa: E402

SETTINGS = ("NPU_ASD_", "ASD_", "MS_", "RANK_", "DEVICE_", "GLOG_")


@pytest.fixture(scope="session")
def environ(tmp_path_factory):
    """The environment of a user: no setting of ours, and `python` and `asd` are those that run these tests."""
    programs = tmp_path_factory.mktemp("bin")
    for name, words in (("python", ""), ("asd", "-m asd")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}
    path = os.pathsep.join((str(programs), str(Path(sys.executable).parent), os.environ["PATH"]))
    return {**kept, "PATH": path, "GLOG_v": "3", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="session")
def a_run(tmp_path_factory, environ):
    """A folder with a training, and what a run of it with one anomaly has left."""
    folder = tmp_path_factory.mktemp("run")
    shutil.copy(HERE / "programs" / "train.py", folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    for block in (block for path in (ROOT / "docs").glob("*.md") for block in blocks(path)):
        if (mark := block.marks.get("with", "")).startswith("file "):
            (folder / mark.removeprefix("file ")).write_text(block.text)
    (folder / "publicCustomization.json").write_text(json.dumps({"publicFaultCode": {}, "publicFaultResource": []}))
    how = {"capture_output": True, "text": True, "check": False, "timeout": 240}
    command = ["asd", "run", "python", "train.py"]
    done = subprocess.run(command, cwd=folder, env={**environ, "ASD_ON_ANOMALY": "skip"}, **how)
    assert done.returncode == 0, done.stderr
    assert "80818C00" in (folder / "asd_run" / "events-rank0.jsonl").read_text()
    return folder


@pytest.fixture
def work(a_run, tmp_path):
    """A copy of that folder for one test."""
    return Path(shutil.copytree(a_run, tmp_path / "work", symlinks=True))
