"""`asd selftest --seconds`, as far as it goes without computing anything."""

import signal
import socket
import sys
from types import SimpleNamespace

import pytest

from asd import ConfigError
from asd.cli import main
from asd.cli.train.known_answers import user_of
from asd.judge.status import Status
from asd.rundir.names import status_file
from tests.support.events import made_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(2, "No such device"), 3),
        (ImportError("libascend.so"), 3),
        (RuntimeError("no kernel"), 3),
        (ConfigError("--device", "CPU:0", "there is none"), 2),
    ],
)
def test_a_device_that_could_not_be_tested_is_not_one_that_computed_wrongly(capsys, monkeypatch, error, code):
    def lost(device, mode):
        raise error

    name = "asd.operators.selftest.known_answers"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(use_device=lost))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert main(["selftest", "--seconds", "5", "--device", "CPU:0"]) == code
    assert "CPU:0" in capsys.readouterr().err


def leave_status(run_dir, rank, device, **more):
    run_dir.mkdir(exist_ok=True)
    status = made_of(Status, run="llama", rank=rank, host=socket.gethostname(), device=device, pid=1, **more)
    status_file(run_dir, rank).write_text(status.to_json())


def test_a_device_that_a_training_works_on_is_not_tested(tmp_path):
    leave_status(tmp_path / "run", 2, "Ascend:3", active=True, written=100.0)  # below the folder that is given
    assert user_of(tmp_path, "Ascend:3", 159.0) == "rank 2 of llama"
    assert (
        user_of(tmp_path, "Ascend:3", 161.0) == user_of(tmp_path, "Ascend:4", 159.0) == user_of(None, "CPU:0", 0) == ""
    )
