"""The isolator `slurm` on a real Slurm controller."""

import contextlib
import getpass
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from real_programs import binary

sys.path.insert(0, str(Path(__file__).parents[1] / "exporters" / "isolators"))

from isolator_conformance import EVENT, WHY, Conformance
from isolator_engines import ONE, TWO, Engine

from asd.errors import IsolationError
from asd.exporters.isolators import make_isolator
from asd.exporters.isolators.slurm.node import parse_node
from asd.isolator import Device, IsolationOwner
from tests.support.ports import free_port

pytestmark = pytest.mark.stack

THEIRS = "fan broken, see ticket 7 [bob@2026-01-01T00:00:00]"


class SlurmEngine(Engine):
    """A controller with four nodes and no node daemon, which draining does not need."""

    name = "slurm"
    failures = {"stopped": True}  # noqa: RUF012 - never changed
    least_deaths = 3

    def __init__(self, start):
        folder = start.folder / "slurm"
        (folder / "state").mkdir(parents=True)
        self.conf, log = folder / "slurm.conf", folder / "slurmctld.log"
        self.conf.write_text(
            f"ClusterName=test\nSlurmctldHost={socket.gethostname().split('.')[0]}(127.0.0.1)\n"
            f"AuthType=auth/none\nCredType=cred/none\nSlurmUser={getpass.getuser()}\n"
            f"SlurmctldPort={free_port()}\nSlurmdPort={free_port()}\nStateSaveLocation={folder / 'state'}\n"
            f"SlurmdSpoolDir={folder}\nSlurmctldPidFile={folder / 'pid'}\nSlurmctldLogFile={log}\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\nGresTypes=npu\n"
            "SwitchType=switch/none\nMpiDefault=none\nReturnToService=0\n"
            "CommunicationParameters=NoCtldInAddrAny\n"
            "NodeName=n[0-3] NodeAddr=127.0.0.1 CPUs=2 Gres=npu:8 State=UNKNOWN\n"
            "PartitionName=all Nodes=ALL Default=YES State=UP\n"
        )
        self.program = start(binary("slurmctld"), "-D", "-f", self.conf)
        self.program.eventually(lambda: "n[0-3]" in self.run("sinfo", "-h", "-o", "%N").stdout)
        super().__init__(conf=str(self.conf), timeout=1)

    def run(self, *words):
        """A program of Slurm, as an operator calls it."""
        environ = {**os.environ, "SLURM_CONF": str(self.conf), "LC_ALL": "C.UTF-8"}
        command = [binary(words[0]), *words[1:]]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=30, check=False)

    def update(self, host, *change):
        return self.run("scontrol", "update", f"NodeName={host}", *change)

    def others(self, device):
        assert self.update(device.host, "State=DRAIN", f"Reason={THEIRS}").returncode == 0

    def node(self, name):
        return parse_node(self.run("scontrol", "-o", "show", "node", name).stdout)

    def reasons(self):
        """What an operator sees: node, reason and who set it."""
        lines = self.run("sinfo", "-h", "-R", "-o", "%N|%12U|%2000E").stdout.splitlines()
        return {node: (reason.strip(), user.strip()) for node, user, reason in (line.split("|", 2) for line in lines)}

    def state(self):
        nodes = [self.node(f"n{number}") for number in range(4)]
        return [(node.drained, node.reason if node.drained else "") for node in nodes]

    @contextlib.contextmanager
    def failing(self, how):
        os.kill(self.program.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.program.process.pid, signal.SIGCONT)

    def reset(self):
        for number in range(4):
            self.update(f"n{number}", "State=RESUME")  # its exit code says nothing
        assert self.state() == [(False, "")] * 4


@pytest.fixture(scope="module")
def slurm(start):
    """One controller serves all tests here."""
    return SlurmEngine(start)


@pytest.fixture
def engine(slurm):
    """The controller, with all nodes free."""
    slurm.reset()
    return slurm


class TestSlurm(Conformance):
    pass


def test_the_reason_names_code_devices_and_events_to_who_asks_sinfo(engine):
    isolator = engine.make()
    isolator.isolate(ONE, WHY, EVENT)
    reason, user = engine.reasons()["n0"]
    assert reason == f"ASD 80818C00 Ascend:3 evt-{EVENT}"
    assert user.startswith(getpass.getuser())
    isolator.isolate(TWO, WHY, "42")
    assert engine.reasons()["n0"][0] == f"ASD 80818C00 Ascend:3 evt-{EVENT}, Ascend:4 evt-42"
    isolator.release(ONE)
    assert engine.reasons()["n0"][0] == "ASD 80818C00 Ascend:4 evt-42"


def test_all_sixteen_devices_of_a_node_fit_in_the_reason(engine):
    isolator, devices = engine.make(), [Device("n1", f"Ascend:{number}", number) for number in range(16)]
    for device in devices:
        isolator.isolate(device, WHY, EVENT)
    assert [engine.make().held(device) for device in devices] == [IsolationOwner.OURS] * 16
    for device in devices:
        isolator.release(device)
    assert engine.state() == [(False, "")] * 4


def test_the_nodes_that_there_are_are_known(engine):
    assert engine.make().nodes() == ["n0", "n1", "n2", "n3"]


def test_a_node_that_somebody_else_set_down_is_theirs(engine):
    engine.update("n2", "State=DOWN", "Reason=memory")
    device = Device("n2", "Ascend:0", 0)
    assert engine.make().held(device) is IsolationOwner.OTHERS
    with pytest.raises(IsolationError, match="'memory'"):
        engine.make().isolate(device, WHY, EVENT)


def test_a_drain_that_an_operator_takes_over_is_theirs(engine):
    engine.make().isolate(ONE, WHY, EVENT)
    engine.update("n0", "Reason=kept for analysis")
    engine.make().release(ONE)
    assert (engine.make().held(ONE), engine.reasons()["n0"][0]) == (IsolationOwner.OTHERS, "kept for analysis")


def test_a_node_that_an_operator_resumed_is_free_and_can_be_taken_out_again(engine):
    isolator = engine.make()
    isolator.isolate(ONE, WHY, EVENT)
    isolator.isolate(TWO, WHY, EVENT)
    engine.update("n0", "State=RESUME")
    assert isolator.held(ONE) is IsolationOwner.FREE
    isolator.isolate(ONE, WHY, "new")
    assert engine.reasons()["n0"][0] == "ASD 80818C00 Ascend:3 evt-new"


def test_a_node_that_went_down_meanwhile_stays_down_when_it_is_given_back(engine):
    isolator = engine.make()
    isolator.isolate(ONE, WHY, EVENT)
    engine.update("n0", "State=DOWN", f"Reason={engine.reasons()['n0'][0]}")
    engine.update("n0", "State=DRAIN", f"Reason={engine.reasons()['n0'][0]}")
    isolator.release(ONE)
    assert isolator.held(ONE) is IsolationOwner.FREE
    assert "DOWN" in engine.node("n0").flags
    isolator.isolate(ONE, WHY, EVENT)
    assert isolator.held(ONE) is IsolationOwner.OURS


def test_a_controller_that_is_not_there_is_said_in_one_sentence(engine, start, tmp_path):
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        engine.conf.read_text().replace("SlurmctldPort=", f"MessageTimeout=1\nSlurmctldPort={free_port()}\n#")
    )
    began = time.monotonic()
    with pytest.raises(IsolationError, match="Unable to contact slurm controller|did not answer within") as caught:
        make_isolator("slurm", conf=str(conf), timeout=15).held(ONE)
    assert caught.value.retry
    assert time.monotonic() - began < 20
