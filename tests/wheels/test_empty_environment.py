"""The wheel in an environment that has nothing of the checkout: the demo and the self-test run."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

FOLDER = os.environ.get("WHEELS_FOLDER")
pytestmark = [pytest.mark.skipif(FOLDER is None, reason="`make wheels` says in WHEELS_FOLDER where they are")]


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
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Behind its own programs those of third-party packages: MindSpore's launcher is one.
    environ["PATH"] = f"{python.parent}{os.pathsep}{Path(sys.executable).parent}"

    def asd(*words):
        return subprocess.run(
            [python.parent / "asd", *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=1200
        )

    command, how = [python, "-c", "import asd; print(asd.__file__)"], {"capture_output": True, "text": True}
    where = subprocess.run(command, cwd=folder, env=environ, check=True, **how).stdout
    assert where.startswith(str(folder))
    return asd


def test_the_demo_comes_to_its_end_with_the_wheel(run):
    done = run("demo")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def test_the_self_test_finds_nothing_wrong(run):
    done = run("selftest", "--device", "CPU", "--only", "measuring", "--only", "gate")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
