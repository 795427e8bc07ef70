"""The handler's state is copied while it works, put back, and met by another version, as docs/upgrade.md says."""

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asd.cli import main
from asd.exporters.run_files.event_log import EventLog
from asd.rundir.names import event_file
from tests.support.events import event_maker

DOCUMENT = Path(__file__).parents[3] / "docs" / "upgrade.md"
pytestmark = pytest.mark.skipif(not DOCUMENT.exists(), reason="the page with the commands is in the checkout only")


made = event_maker(run="llama", kind="replay", verdict="persistent")


def raises(run_dir, device):
    """A replay finds that the hardware of a device is broken."""
    told = made(1, "node7", device, 3, time=time.time())
    EventLog(event_file(run_dir, 3))(told)


def options(folder):
    """Those of a handler: its runs, its state, and a host list that the isolator takes hosts out of."""
    hosts = folder / "hosts"
    hosts.write_text("node6\nnode7\n")
    places = ["--run-dir", str(folder / "runs"), "--state", str(folder / "handler.sqlite")]
    return [*places, "--isolator", "hostfile", "--option", f"hosts={hosts}", "--settle", "0"]


def handled(folder, *more):
    return main(["handler", "--once", "--from-beginning", *options(folder), *more])


def out(folder):
    """Which devices node7 is out for by the host list."""
    return re.findall(r"(Ascend:[0-9]) evt-", (folder / "hosts.asd").read_text())


def script(name, folder):
    """A command of the page, with the paths of a test."""
    (found,) = re.findall(rf"^(python3 -c .*{name}.*)$", DOCUMENT.read_text(), re.M)
    text = found.replace("python3", sys.executable).replace("/var/lib/asd/handler/", f"{folder}/")
    return ["bash", "-ec", text]


def states(folder, capsys):
    capsys.readouterr()
    assert main(["devices", "--json", "--state", str(folder / "handler.sqlite")]) == 0
    return {each["device"]: each["state"] for each in json.loads(capsys.readouterr().out)}


def test_what_was_done_after_the_copy_is_known_again_when_the_copy_is_put_back(tmp_path, capsys):
    (tmp_path / "runs").mkdir()
    raises(tmp_path / "runs", "Ascend:3")
    assert handled(tmp_path) == 0
    for _ in range(2):  # a backup replaces the one before
        subprocess.run(script("backup", tmp_path), check=True)
    raises(tmp_path / "runs", "Ascend:5")
    assert handled(tmp_path) == 0
    for name in ("handler.sqlite", "handler.sqlite-wal", "handler.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / "copy.sqlite").rename(tmp_path / "handler.sqlite")
    assert states(tmp_path, capsys) == {"Ascend:3": "isolated"}
    assert handled(tmp_path) == 0
    assert states(tmp_path, capsys) == {"Ascend:3": "isolated", "Ascend:5": "isolated"}
    assert out(tmp_path) == ["Ascend:3", "Ascend:5"]
