"""Two handlers, agents that are pods, a real API server: one acts, whoever is killed, and no device is taken twice."""

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
import uuid
from importlib.util import find_spec
from pathlib import Path

import pytest
import trustme
from real_programs import eventually, get

sys.path.insert(0, str(Path(__file__).parents[1] / "exporters" / "isolators"))

from isolator_engines import KubeEngine
from test_kubernetes import TOKEN, Server

from asd.exporters.isolators.kubernetes.node_mark import marks_of
from asd.exporters.run_files.event_log import EventLog
from asd.rundir.names import event_file
from tests.support.events import event_maker
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(find_spec("lightkube") is None, reason="needs the extra k8s"),
    pytest.mark.skipif(shutil.which("kube-apiserver") is None, reason="build_kube_apiserver.sh builds kube-apiserver"),
]
NODES = {"node7": "127.0.0.7", "node8": "127.0.0.8"}
AGENT = """
tls_server_config: {cert_file: agent.pem, key_file: agent.key, client_auth_type: RequireAndVerifyClientCert,
  client_ca_file: ca.pem}
"""
CLIENT = "tls_config: {ca_file: ca.pem, cert_file: handler.pem, key_file: handler.key, server_name: asd-agent}\n"
QUICK = Path(__file__).parent / "programs" / "quick_lease.py"
KILLS = 100


class Site:
    """A namespace with an agent on each node, and handlers by name."""

    def __init__(self, start, server, folder, program=("-m", "asd")):
        self.start, self.server, self.folder, self.program = start, server, folder, program
        self.namespace, self.port = f"asd-{uuid.uuid4().hex[:8]}", free_port()
        self.kube = KubeEngine(folder, server.url, TOKEN, context=server.context)
        self.handlers, self.ports = {}, {}
        self.before = server.audit.stat().st_size if server.audit.exists() else 0
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        for name, certified in (("agent", "asd-agent"), ("handler", "handler.example")):
            certificate = authority.issue_cert(certified)
            certificate.private_key_pem.write_to_path(str(folder / f"{name}.key"))
            certificate.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
        for name, text in (("agent.yml", AGENT), ("client.yml", CLIENT)):
            (folder / name).write_text(text)
            (folder / name).chmod(0o600)
        self.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        self.post(f"/api/v1/namespaces/{self.namespace}/serviceaccounts", {"metadata": {"name": "default"}})
        for node, address in NODES.items():
            self.add_node(node, address)

    def post(self, path, body):
        return self.kube.api("POST", path, body, "application/json")

    def add_node(self, node, address):
        with contextlib.suppress(OSError):
            self.kube.api("DELETE", f"/api/v1/nodes/{node}")
        self.post("/api/v1/nodes", {"metadata": {"name": node}})
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        container = {"name": "agent", "image": "asd"}
        spec = {"nodeName": node, "containers": [container], "automountServiceAccountToken": False}
        self.post(pods, {"metadata": {"name": f"agent-{node}", "labels": {"app": "asd-agent"}}, "spec": spec})
        status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
        self.kube.api("PATCH", f"{pods}/agent-{node}/status", status)
        (self.folder / node).mkdir()
        options = f"--run-dir {self.folder / node} --host {node} --address {address} --port {self.port}"
        self.start.asd("exporter", *options.split(), "--web-config", self.folder / "agent.yml")

    def verdict(self, node, number):
        told = event_maker(run="llama", kind="replay", verdict="persistent", time=time.time())(
            1, node, f"Ascend:{number}", number
        )
        EventLog(event_file(self.folder / node, number))(told)
        return node, f"Ascend:{number}"

    def begin(self, name):
        """Starts a handler, or starts it again."""
        self.ports.setdefault(name, free_port())
        home = self.folder / name
        home.mkdir(exist_ok=True)
        options = f"""
            --agents kubernetes:{self.namespace}/app=asd-agent:{self.port} --agents-config {self.folder / "client.yml"}
            --lease {self.namespace}/asd-handler --isolator kubernetes --state {self.state(name)}
            --metrics 127.0.0.1:{self.ports[name]} --max-devices 1000 --max-percent 100
        """
        environ = {"KUBECONFIG": str(self.kube.kubeconfig), "ASD_RUN_DIR": str(home)}
        self.handlers[name] = self.start(sys.executable, *self.program, "handler", *options.split(), **environ)

    def state(self, name):
        return self.folder / name / "handler.sqlite"

    def acts(self, name):
        try:
            return "\nasd_handler_acting 1.0\n" in get(f"http://127.0.0.1:{self.ports[name]}/metrics")
        except OSError:
            return False

    @property
    def holder(self):
        lease = self.kube.api("GET", f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases/asd-handler")
        return lease["spec"]["holderIdentity"]

    def isolated(self):
        nodes = {node: self.kube.api("GET", f"/api/v1/nodes/{node}") for node in NODES}
        return sorted((node, device) for node, found in nodes.items() for device in marks_of(found))

    def takings(self):
        """How often each device was taken out, as the server noted it."""
        taken, marked = [], {node: set() for node in NODES}
        for line in self.server.audit.read_bytes()[self.before :].splitlines():
            told = json.loads(line)
            node = told["objectRef"]["name"]
            if told["responseStatus"]["code"] != 200 or told["objectRef"].get("subresource") or node not in marked:
                continue
            now = set(marks_of(told["responseObject"]))
            taken += [(node, device) for device in now - marked[node]]
            marked[node] = now
        return sorted(taken)


@pytest.fixture(scope="module")
def server(start):
    return Server(start)


def test_the_standby_takes_over_within_thirty_seconds_and_goes_on(start, server, tmp_path):
    site = Site(start, server, tmp_path)
    site.begin("one")
    site.handlers["one"].eventually(lambda: site.acts("one"), 60)
    site.begin("two")
    site.handlers["two"].eventually(lambda: "it stands by: " in site.handlers["two"].text, 60)
    guilty = [site.verdict("node7", 3)]
    eventually(lambda: site.isolated() == guilty, 60)
    assert not site.acts("two")
    refused = start.asd("devices", "release", "node7", "Ascend:3", "--state", site.state("two"))
    assert refused.process.wait(60) == 1
    assert "stands by; give this command where" in refused.text
    site.handlers["one"].process.kill()
    killed = time.monotonic()
    guilty.append(site.verdict("node8", 1))
    eventually(lambda: site.isolated() == guilty, 60)
    took = time.monotonic() - killed
    print(f"the standby had the device isolated after {took:.1f} s")
    assert took < 30
    assert site.takings() == guilty
    site.begin("one")
    eventually(lambda: "it stands by: " in site.handlers["one"].text, 60)
    site.handlers["two"].process.terminate()
    ended = time.monotonic()
    eventually(lambda: site.acts("one"), 30)
    assert time.monotonic() - ended < 14  # it was given back, so nobody waits until it runs out
    assert site.takings() == guilty


def test_one_that_is_cut_off_from_the_server_ends_before_another_may_begin(start, server, tmp_path):
    site = Site(start, server, tmp_path)
    site.begin("one")
    eventually(lambda: site.acts("one"), 60)
    site.begin("two")
    eventually(lambda: "it stands by: " in site.handlers["two"].text, 60)
    one = site.handlers["one"].process
    os.kill(one.pid, signal.SIGSTOP)
    eventually(lambda: site.acts("two"), 60)
    guilty = [site.verdict("node7", 5)]
    os.kill(one.pid, signal.SIGCONT)
    assert one.wait(30) == 1
    assert "so this one ends now" in site.handlers["one"].text
    eventually(lambda: site.isolated() == guilty, 60)
    assert site.takings() == guilty


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_a_hundred_times_no_device_is_taken_twice_and_none_is_lost(start, server, tmp_path):
    chance = random.Random(24)
    site = Site(start, server, tmp_path, (QUICK,))
    names = ("one", "two")
    for name in names:
        site.begin(name)
    eventually(lambda: any(map(site.acts, names)), 60)
    guilty, given_back, killed = [], [], []
    for turn in itertools.takewhile(lambda _turn: sum(killed) < KILLS, itertools.count()):
        if turn % 3 == 0:
            guilty.append(site.verdict(chance.choice(list(NODES)), turn))
        time.sleep(chance.random() * 3)
        if turn % 10 == 9:
            eventually(lambda: any(map(site.acts, names)), 60)
        acting = [name for name in names if site.acts(name)]
        if turn % 10 == 9 and acting:
            give_back(site, acting[0], guilty, given_back)
        name = acting[0] if acting and chance.random() < 0.7 else chance.choice(names)
        killed.append(disturb(site, name, chance))
        for name in [name for name in names if site.handlers[name].process.poll() is not None]:
            site.begin(name)  # as kubelet does
    wanted = sorted(set(guilty) - set(given_back))
    eventually(lambda: site.isolated() == wanted, 120)
    time.sleep(5)
    assert site.isolated() == wanted
    assert site.takings() == sorted(guilty)
    assert given_back
    print(
        f"{KILLS} kills, {len(killed) - KILLS} starved, {len(guilty)} devices taken out once each, "
        f"{len(given_back)} of them given back"
    )


def disturb(site, name, chance):
    """Kills a handler, or starves it for about as long as its Lease lasts; returns whether it was killed."""
    process = site.handlers[name].process
    if chance.random() < 0.2:
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1 + 4 * chance.random())
        os.kill(process.pid, signal.SIGCONT)
        return False
    process.kill()
    process.wait(30)
    if chance.random() < 0.3:
        shutil.rmtree(site.folder / name)  # its pod came to another node
    return True


def give_back(site, name, guilty, given_back):
    """A person gives a device back that is out; what a kill came before is asked for again."""
    out = [device for device in site.isolated() if device in guilty]
    if out:
        asked = site.start.asd("devices", "release", *out[0], "--state", site.state(name))
        asked.process.wait(60)
        if "it was released by hand" in asked.text:
            given_back.append(out[0])
