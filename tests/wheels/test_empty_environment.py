"""The wheel in an environment that has nothing of the checkout: README's commands run."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = os.environ.get("WHEELS_FOLDER")
SKIP = pytest.mark.skipif(FOLDER is None, reason="`make wheels` says in WHEELS_FOLDER where they are")
pytestmark = [SKIP, pytest.mark.timeout(2400)]
COMMANDS = (
    "asd demo",
    "asd selftest --device CPU --only measuring --only gate",
    "python train.py",
    "asd env --training --run-dir asd_run",
    "asd events --run-dir asd_run --level first",
    "asd report asd_run",
    "asd handler --run-dir asd_run --once --dry-run",
    "asd devices --run-dir asd_run --state asd_run/handler-dry-run.sqlite",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Runs a command of the installed wheel; what else it needs is seen through a .pth file."""
    folder = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-deps", "--no-index"]
    subprocess.run([*install, next(Path(FOLDER).glob("*.whl"))], check=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    (packages / "third_party.pth").write_text(sysconfig.get_path("purelib") + "\n")
    shutil.copy(ROOT / "tests" / "docs" / "programs" / "train.py", folder)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"NPU_ASD_ENABLE": "1"}
    # Behind its own programs those of third-party packages: MindSpore's launcher is one.
    environ["PATH"] = f"{python.parent}{os.pathsep}{Path(sys.executable).parent}"

    def run(*words):
        command = [python.parent / words[0], *words[1:]]
        return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)

    assert run("python", "-c", "import asd; print(asd.__file__)").stdout.startswith(str(folder))
    return run


def test_the_commands_of_readme_come_to_their_end_and_the_wheel_knows_its_commit(run):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f"(commit {head[:12]}" in run("asd", "--version").stdout
    for command in COMMANDS:
        done = run(*command.split())
        assert done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
