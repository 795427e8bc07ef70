"""Prolog, epilog and health check of deploy/slurm, run by a real slurmd for a real job."""

import json
import os
import pwd
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from real_programs import binary, eventually, get

from tests.support.ports import free_port

SCRIPTS = Path(__file__).parents[2] / "deploy" / "slurm"
RANK = Path(__file__).parent / "programs" / "striking_rank.py"
pytestmark = [pytest.mark.stack, pytest.mark.skipif(os.getuid() != 0, reason="slurmd starts jobs of others as root")]
REASON = "asd: the agent does not answer"


class Cluster:
    """A controller and one node, which is this machine; the scripts are shipped ones, the paths are below a folder."""

    def __init__(self, start):
        folder = start.folder
        self.runs, self.agent_port = folder / "runs", free_port()
        for path in (folder.parent.parent, folder.parent, folder):
            path.chmod(0o755)  # the job is another user's
        for name in ("state", "spool", "etc"):
            (folder / name).mkdir()
        agent = f"http://127.0.0.1:{self.agent_port}"
        (folder / "etc" / "settings").write_text(f"RUNS={self.runs}\nAGENT={agent}\nDRAIN=yes\n")
        self.conf, host = folder / "slurm.conf", socket.gethostname().split(".")[0]
        example = (SCRIPTS / "slurm.conf.example").read_text()
        for name in ("prolog", "epilog", "task_prolog", "health_check"):
            wrapper = folder / "etc" / f"{name}.sh"  # slurmd gives its programs hardly any environment
            wrapper.write_text(
                f"#!/bin/sh\nset -a; . {folder}/etc/settings; SLURM_CONF={self.conf}; PATH=/usr/bin:/bin:/usr/sbin\n"
                f"exec {SCRIPTS / name}.sh\n"
            )
            wrapper.chmod(0o755)
        self.conf.write_text(
            f"ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nAuthType=auth/none\nCredType=cred/none\nSlurmUser=root\n"
            f"SlurmctldPort={free_port()}\nSlurmdPort={free_port()}\nStateSaveLocation={folder / 'state'}\n"
            f"SlurmdSpoolDir={folder / 'spool'}\nSlurmdPidFile={folder / 'd.pid'}\n"
            f"SlurmctldPidFile={folder / 'c.pid'}\n"
            f"SlurmctldLogFile={folder / 'slurmctld.log'}\nSlurmdLogFile={folder / 'slurmd.log'}\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSelectType=select/cons_tres\n"
            "SwitchType=switch/none\nMpiDefault=none\nReturnToService=1\nCommunicationParameters=NoCtldInAddrAny\n"
            f"NodeName=n0 NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN\n"
            "PartitionName=all Nodes=ALL Default=YES State=UP\n"
            + example.replace("/etc/slurm/asd", str(folder / "etc")).replace("Interval=60", "Interval=2")
        )
        start(binary("slurmctld"), "-D", "-f", self.conf)
        eventually(lambda: "n0" in self.run("sinfo", "-h", "-o", "%N").stdout)
        start(binary("slurmd"), "-D", "-N", "n0", "-f", self.conf)

    def run(self, *words, user=None):
        environ = {**os.environ, "SLURM_CONF": str(self.conf), "LC_ALL": "C.UTF-8"}
        command = [binary(words[0]), *map(str, words[1:])]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, user=user, cwd="/")

    def state(self):
        return self.run("sinfo", "-h", "-N", "-o", "%T %E").stdout.strip()


@pytest.fixture(scope="module")
def cluster(start):
    return Cluster(start)


def start_agent(start, cluster):
    url = f"http://127.0.0.1:{cluster.agent_port}/healthz"
    state = start.folder / "agent" / "exporter.sqlite"
    options = f"--run-dir {cluster.runs} --host n0 --state {state} --port {cluster.agent_port}".split()
    return start.asd("exporter", *options, ready=url)


def test_a_node_that_nobody_watches_gets_no_jobs_until_somebody_does(cluster, start):
    cluster.runs.mkdir()
    eventually(lambda: cluster.state() == f"drained {REASON}")
    agent = start_agent(start, cluster)
    eventually(lambda: cluster.state() == "idle none")
    cluster.run("scontrol", "update", "NodeName=n0", "State=DRAIN", "Reason=fan broken")
    agent.stop()
    agent = start_agent(start, cluster)
    cluster.run("scontrol", "update", "NodeName=n0", "Reason=fan broken")
    eventually(lambda: cluster.state() == "drained fan broken")
    cluster.run("scontrol", "update", "NodeName=n0", "State=RESUME")
    eventually(lambda: cluster.state() == "idle none")


def test_a_job_writes_where_only_it_may_and_the_agent_finds_it(cluster, start):
    user = pwd.getpwnam("nobody")
    eventually(lambda: cluster.state() == "idle none")
    text = "echo $ASD_NODE $ASD_RUN_DIR; touch $ASD_RUN_DIR/mine; ls -ld $ASD_RUN_DIR; touch $ASD_RUN_DIR/../other 2>&1"
    told = cluster.run("srun", "-n1", "sh", "-c", text, user=user.pw_uid)
    node, run_dir = told.stdout.split()[:2]
    folder = Path(run_dir)
    assert (node, folder.parent) == ("n0", cluster.runs / "slurm")
    assert f"drwxr-xr-x 2 {user.pw_name}" in told.stdout
    assert "Permission denied" in told.stdout
    eventually(lambda: (folder / "mine").stat().st_uid == folder.stat().st_uid == 0)  # by the epilog


def test_what_a_job_raises_is_seen_by_the_agent_of_its_node(cluster, start):
    done = cluster.run(
        "srun", "-n1", "sh", "-c", f"touch $ASD_RUN_DIR/go; timeout 6 {sys.executable} {RANK}; ls $ASD_RUN_DIR"
    )
    assert "events-rank0.jsonl" in done.stdout, done.stderr
    url = f"http://127.0.0.1:{cluster.agent_port}/events"
    assert eventually(lambda: {each["data"]["host"] for each in json.loads(get(url))}) == {"n0"}
