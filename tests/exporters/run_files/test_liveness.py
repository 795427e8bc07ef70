"""Whether the process behind a status still lives."""

import os
import signal
import socket
import subprocess
import sys
import time
from unittest.mock import Mock

import psutil
import pytest

from asd import Config
from asd.exporters.run_files.liveness import Liveness
from asd.judge.monitor import Monitor
from asd.judge.status import Status
from asd.origin import Origin
from tests.support.events import made_of


def status(pid, **changes):
    now = time.time()
    fields = {"run": "r", "rank": 0, "host": socket.gethostname(), "device": "CPU:0", "started": now, "written": now}
    return made_of(Status, **{**fields, "pid": pid, **changes})


@pytest.fixture
def process():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_a_killed_process_is_dead_before_its_parent_has_looked_and_after(process):
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # now it is a zombie
    assert not Liveness()(status(process.pid))
    process.wait()
    assert not Liveness()(status(process.pid))


def test_another_process_that_got_the_number_is_not_taken_for_it(process):
    long_ago = time.time() - 3600
    assert not Liveness()(status(process.pid, started=long_ago, written=long_ago + 100))


def test_a_process_that_runs_lives_also_when_the_clock_was_set_forward(process):
    assert Liveness()(status(process.pid))
    assert Liveness()(status(process.pid, started=time.time() - 3600))


@pytest.mark.parametrize("pid", [0, -1, 2**40])
def test_a_number_that_no_process_can_have_proves_nothing_or_death(pid):
    assert Liveness()(status(pid)) is (pid <= 0)


def test_a_process_of_another_user_that_proc_hides_lives(monkeypatch):
    monkeypatch.setattr(psutil, "PROCFS_PATH", "/hidden")  # as with hidepid=2: no process of others is there
    monkeypatch.setattr(os, "kill", Mock(side_effect=PermissionError))
    assert Liveness()(status(1))


def test_of_another_machine_or_namespace_it_is_believed_what_the_status_says():
    own, here = Monitor(Config(), Origin("r", 0, "node7", "CPU:0")).status.machine, socket.gethostname()
    assert own.startswith(f"{here} pid:[")
    machines = {"": True, "elsewhere": True, f"{here} pid:[1]": True, own: False, here: False}
    assert {each: Liveness()(status(2**22 + 1, host="elsewhere", machine=each)) for each in machines} == machines
