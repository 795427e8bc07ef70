"""`asd handler` pulls from `asd exporter` processes over mutual TLS, whoever is killed: each event once, none lost."""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import trustme

import asd
from asd.exporters.run_files.event_log import EventLog, read_events
from asd.handler.db.store import events_file
from asd.rundir.names import event_file
from tests.support.events import event_maker, growing
from tests.support.ports import free_port
from tests.support.waiting import wait_for

MUTUAL = """
tls_server_config:
  cert_file: {name}.pem
  key_file: {name}.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
"""
place = {"run": "llama", "rank": 3, "device": "Ascend:3", "value": growing, "checkpoint": "audited"}
event = event_maker(**place, kind="replay", verdict="undetermined", time=lambda step: time.time())


def verdict(host, device="Ascend:3", **changes):
    return event(1, host, device, checkpoint="a", verdict="persistent", **changes)


class Cluster:
    """Nodes with an agent each, and a handler that knows them from a file."""

    def __init__(self, folder):
        self.folder = folder
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.ports, self.agents, self.handler = {}, {}, None
        self.state = folder / "state" / "handler.sqlite"
        self.issue("handler", "handler.example")
        (folder / "client.yml").write_text(
            "tls_config: {ca_file: ca.pem, cert_file: handler.pem, key_file: handler.key}\n"
        )

    def issue(self, name, *names, authority=None):
        certificate = (authority or self.authority).issue_cert(*names)
        certificate.private_key_pem.write_to_path(str(self.folder / f"{name}.key"))
        (self.folder / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))

    def port_of(self, node):
        if node not in self.ports:
            self.ports[node] = free_port()
            self.issue(node, "127.0.0.1", node)
            web = self.folder / f"{node}.yml"
            web.write_text(MUTUAL.format(name=node))
            web.chmod(0o600)
        return self.ports[node]

    def start_agent(self, node, *options):
        port = self.port_of(node)
        given = ("--run-dir", self.run_dir(node), "--port", port, "--web-config", self.folder / f"{node}.yml")
        self.agents[node] = start(self.folder / f"{node}.err", "exporter", *given, *options)

    def run_dir(self, node):
        path = self.folder / node
        path.mkdir(exist_ok=True)
        return path

    def write(self, *events):
        for told in events:
            self.write_on(told.host, told)

    def write_on(self, node, told):
        EventLog(event_file(self.run_dir(node), told.rank))(told)

    def name_agents(self, *nodes):
        groups = [{"targets": [f"127.0.0.1:{self.port_of(node)}"], "labels": {"node": node}} for node in nodes]
        beside = self.folder / "agents.new"
        beside.write_text(json.dumps(groups))
        beside.replace(self.folder / "agents.json")

    def start_handler(self, *options):
        given = {
            "--agents": self.folder / "agents.json",
            "--agents-config": self.folder / "client.yml",
            "--state": self.state,
            "--metrics": f"127.0.0.1:{self.metrics_port}",
            **{"--max-devices": 100, "--max-percent": 100},
        }
        words = [word for pair in given.items() for word in pair]
        home = self.folder / "handler_home"
        self.handler = start(
            self.folder / "handler.err", "handler", "--from-beginning", *words, *options, ASD_RUN_DIR=home
        )

    @property
    def metrics_port(self):
        return self.port_of("metrics")

    def ask(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=10) as response:
            return response.read().decode()

    def metric(self, series):
        with contextlib.suppress(OSError):
            for line in self.ask("/metrics").splitlines():
                if line.startswith(f"{series} "):
                    return float(line.rpartition(" ")[2])
        return None

    def kill(self, node=None):
        process = self.agents[node] if node else self.handler
        process.send_signal(signal.SIGKILL)
        process.wait(30)

    def taken_in(self):
        """The ids that the handler has taken in."""
        return set(self.read("SELECT id FROM seen") if self.state.exists() else ())

    def read(self, query):
        with contextlib.closing(sqlite3.connect(f"file:{self.state}?mode=ro", uri=True)) as db:
            return [row[0].hex() for row in db.execute(query)]

    def isolations(self):
        log = events_file(self.folder / "handler_home")
        return [(told.host, told.device) for told in read_events(log)] if log.exists() else []

    def said(self):
        return (self.folder / "handler.err").read_text().splitlines()

    def close(self):
        for process in (*self.agents.values(), self.handler):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(30)


def start(log, *arguments, **environ):
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ASD_")}
    clean |= {"PYTHONPATH": str(Path(asd.__file__).parents[1])}
    clean |= {name: str(value) for name, value in environ.items()}
    command = [sys.executable, "-m", "asd", *map(str, arguments)]
    with open(log, "a", encoding="utf-8") as errors:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=clean)


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.close()
    for log in sorted(tmp_path.glob("*.err")):  # pytest shows it below a test that failed
        print(log.name, log.read_text(), sep="\n")


def test_who_is_in_the_file_is_pulled_from_and_is_missed_while_it_is_down(cluster):
    for node in ("node7", "node8"):
        cluster.start_agent(node)
    cluster.name_agents("node7")
    cluster.start_handler()
    wait_for(lambda: cluster.metric("asd_handler_agents_unreachable") == 0)
    cluster.write(verdict("node8"))
    cluster.name_agents("node8")
    wait_for(lambda: cluster.isolations() == [("node8", "Ascend:3")])
    cluster.write(verdict("node7"))
    assert cluster.metric("asd_handler_agents") == 1
    assert cluster.ask("/readyz") == "ready\n"
    cluster.write(verdict("node8", "Ascend:4", rank=4))
    wait_for(lambda: len(cluster.isolations()) == 2)
    assert cluster.isolations() == [("node8", "Ascend:3"), ("node8", "Ascend:4")]
    place = f"127.0.0.1:{cluster.ports['node8']}"
    cluster.kill("node8")
    wait_for(lambda: cluster.metric("asd_handler_agents_unreachable") == 1)
    assert cluster.metric(f'asd_handler_agent_up{{agent="{place}"}}') == 0
    cluster.write(verdict("node8", "Ascend:5", rank=5))
    cluster.start_agent("node8")
    wait_for(lambda: len(cluster.isolations()) == 3)
    wait_for(lambda: cluster.metric("asd_handler_agents_unreachable") == 0)
    assert ["answers again" in line for line in cluster.said() if f" at {place} " in line][-2:] == [False, True]


def test_a_forged_agent_without_a_certificate_of_our_authority_is_not_heard(cluster):
    port = cluster.port_of("node7")
    cluster.issue("node7", "127.0.0.1", "node7", authority=trustme.CA())
    cluster.write(verdict("node7"))
    cluster.start_agent("node7")
    wait_for(lambda: listens(port))
    cluster.name_agents("node7")
    cluster.start_handler()
    (line,) = wait_for(lambda: [line for line in cluster.said() if "certificate" in line])
    assert f"the agent of node7 at 127.0.0.1:{port} " in line
    assert cluster.taken_in() == set()


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def test_once_takes_in_what_the_agents_have_and_tells_by_its_exit_code_that_one_is_missing(cluster):
    cluster.write(verdict("node7"))
    cluster.start_agent("node7")
    wait_for(lambda: listens(cluster.ports["node7"]))
    cluster.name_agents("node7")
    cluster.start_handler("--once")
    assert cluster.handler.wait(60) == 0
    assert cluster.isolations() == [("node7", "Ascend:3")]
    cluster.name_agents("node7", "node8")
    cluster.start_handler("--once")
    assert cluster.handler.wait(60) == 1


@pytest.mark.slow
def test_whoever_is_killed_no_event_is_lost_and_none_is_doubled(cluster):
    nodes = ("node7", "node8")
    for node in nodes:
        cluster.start_agent(node)
    cluster.name_agents(*nodes)
    cluster.start_handler()
    told, step = [], 0
    for turn in range(8):
        known = len(cluster.taken_in())
        for _ in range(60):
            step += 1
            for node in nodes:
                told.append(event(step, node, f"Ascend:{step % 8}", step % 8))
                cluster.write(told[-1])
        told.append(verdict(nodes[turn % 2], f"Ascend:{turn}", rank=turn))
        cluster.write(told[-1])
        if turn % 3 == 0:
            cluster.kill(nodes[turn % 2])
            cluster.start_agent(nodes[turn % 2])
        if turn % 2:
            wait_for(lambda known=known: len(cluster.taken_in()) > known)
            assert cluster.metric('asd_handler_actions_total{action="duplicate"}') in (None, 0)
            cluster.kill()
            cluster.start_handler()
    wait_for(lambda: {each.id for each in told} <= cluster.taken_in())
    guilty = [(each.host, each.device) for each in told if each.verdict == "persistent"]
    wait_for(lambda: len(cluster.isolations()) >= len(guilty))
    assert sorted(cluster.isolations()) == sorted(guilty)
    assert cluster.metric('asd_handler_actions_total{action="duplicate"}') == 0
    assert cluster.metric("asd_handler_missed_events_total") == 0
