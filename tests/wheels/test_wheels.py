"""What `make wheels` leaves: one sdist and one wheel for every machine."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = os.environ.get("WHEELS_FOLDER")
pytestmark = pytest.mark.skipif(FOLDER is None, reason="`make wheels` says in WHEELS_FOLDER where they are")


def test_there_are_an_sdist_and_a_wheel_of_pure_python():
    wheel, sdist = sorted(path.name for path in Path(FOLDER).iterdir())
    assert wheel.endswith("-py3-none-any.whl")
    assert sdist.endswith(".tar.gz")
    with zipfile.ZipFile(Path(FOLDER, wheel)) as opened:
        names = opened.namelist()
    assert not [name for name in names if name.endswith((".so", ".cpp", ".h"))]
    start_up = {"mindspore_asd.pth", "mindspore_asd_start.py"}
    assert {Path(name).name for name in names if ".data/purelib/" in name} == start_up
    with tarfile.open(Path(FOLDER, sdist)) as opened:
        assert {*start_up, "setup.py"} <= {Path(name).name for name in opened.getnames()}


@pytest.mark.parametrize("what", ["*.whl", "*.tar.gz", "editable"])
def test_the_switch_alone_is_enough_until_the_package_is_uninstalled(tmp_path, what):
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python]
    package = ["-e", ROOT] if what == "editable" else [next(Path(FOLDER).glob(what))]

    def started(*options, **environ):
        """What a Python imports at its start beyond its own, and what it prints to standard error."""
        code = "import sys; print(*[name for name in sys.modules if 'asd' in name and 'editable' not in name])"
        command = [python, *options, "-c", code]
        done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split(), done.stderr

    on, nothing = {"NPU_ASD_ENABLE": "1"}, ([], "")
    subprocess.run([*pip, "install", "--no-deps", *package], check=True)
    assert started(**on) == started("-I", **on) == (["mindspore_asd_start"], "")
    assert started() == started(NPU_ASD_ENABLE="0") == started("-S", **on) == nothing
    subprocess.run([*pip, "uninstall", "--yes", "mindspore-asd"], check=True)
    assert started(**on) == nothing
    assert not list(tmp_path.rglob("*mindspore_asd*"))
