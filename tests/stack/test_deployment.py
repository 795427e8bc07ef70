"""The shipped deployment on a real API server: from the files of a training in a pod to a cordoned node."""

import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import time
from pathlib import Path

import pytest
from kubelet import Kubelet, metric
from real_programs import PATIENCE, binary, eventually, get
from test_kubernetes import TOKEN, RealKubeEngine, Server

from tests.support.manifests import FOLDER, rendered

yaml = pytest.importorskip("yaml")
HERE = Path(__file__).parent
DOCUMENT = FOLDER.parents[1] / "docs" / "kubernetes.md"
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(shutil.which("kube-apiserver") is None, reason="build_kube_apiserver.sh builds kube-apiserver"),
    pytest.mark.skipif(
        subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0, reason="needs to mount"
    ),
]
AGENTS = {"node-a": "127.0.1.1", "node-b": "127.0.1.2"}
HANDLERS = {"node-a": "127.0.1.9", "node-b": "127.0.1.10"}
JOB = "127.0.1.20"


class Cluster:
    """An API server with two nodes, and kubectl of its administrator."""

    def __init__(self, start):
        self.folder = start.folder
        self.server = Server(start)
        engine = RealKubeEngine(start.folder, self.server.url, TOKEN, context=self.server.context)
        self.ask_as_it_is = engine.api
        self.kubeconfig = engine.kubeconfig
        app = start.folder / "app"
        app.mkdir()
        shutil.copy(HERE / "programs" / "striking_rank.py", app / "train.py")
        self.nodes, self.running = {}, {}
        for name in AGENTS:
            self.ask("POST", "/api/v1/nodes", {"metadata": {"name": name}})
            disk = start.folder / name
            self.nodes[name] = Kubelet(start, self.server, self.ask, name, disk, app)

    def ask(self, method, path, body=None, kind="application/json"):
        return self.ask_as_it_is(method, path, body, kind)

    def shell(self, text, folder):
        """Runs commands of the document where kubectl is that of the administrator."""
        path = f"{Path(binary('kubectl')).parent}:/usr/bin:/bin"
        environ = {"PATH": path, "KUBECONFIG": str(self.kubeconfig), "HOME": str(folder)}
        done = subprocess.run(["sh", "-ec", text], cwd=folder, env=environ, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def kubectl(self, *words, fails=False):
        command = [binary("kubectl"), "--kubeconfig", self.kubeconfig, *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=300)
        assert (done.returncode != 0) is fails, done.stderr
        return done.stdout + done.stderr * fails

    def get(self, kind, name, namespace="asd"):
        return json.loads(self.kubectl("-n", namespace, "get", kind, name, "-o", "json"))

    def node(self, name):
        return json.loads(self.kubectl("get", "node", name, "-o", "json"))

    def is_out(self, name):
        """Whether a node is cordoned and tainted, both or none."""
        spec = self.node(name)["spec"]
        taints = [taint for taint in spec.get("taints", []) if taint["key"].startswith("asd.mindspore.org/")]
        assert bool(spec.get("unschedulable")) == bool(taints)
        return bool(taints)

    def run(self, node, kind, name, pod, address, **options):
        """Runs a pod of what the server keeps under a name."""
        template = self.get(kind, name, **options)["spec"]["template"]
        program, execute = self.nodes[node].run(template, pod, address, **options)
        self.running[pod] = node, program, options
        (container,) = template["spec"]["containers"]
        if "livenessProbe" in container:
            program.eventually(lambda: self.nodes[node].is_live(container, address, "livenessProbe"))
        return container, execute

    def kill(self, pod):
        """Kills the process of a pod; the kubelet of this test does not start it again."""
        _, program, _ = self.running[pod]
        os.killpg(program.process.pid, signal.SIGKILL)
        program.process.wait(PATIENCE)

    def end(self, pod):
        node, program, options = self.running.pop(pod)
        self.nodes[node].remove(pod, program, **options)

    def run_all(self, round_):
        """Runs what was applied: agents and handlers; returns the latter as `address: (pod, execute)`."""
        for name, address in AGENTS.items():
            if f"agent-{name}" not in self.running:
                self.run(name, "daemonset", "asd-agent", f"agent-{name}", address)
        assert self.get("deployment", "asd-handler")["spec"]["replicas"] == len(HANDLERS)
        pods = {address: (f"handler-{round_}-{name}", name) for name, address in HANDLERS.items()}
        return {
            address: (pod, self.run(node, "deployment", "asd-handler", pod, address)[1])
            for address, (pod, node) in pods.items()
        }

    def start_job(self, node, namespace="asd"):
        """Creates the job that is shipped, if need be in another namespace, and runs its pod."""
        text = (FOLDER / "jobs" / "plain.yaml").read_text().replace("namespace: asd", f"namespace: {namespace}")
        file = self.folder / "job.yaml"
        file.write_text(text)
        self.kubectl("create", "-f", file)
        self.run(node, "job", "training", f"training-{namespace}", JOB, namespace=namespace)

    def checkout(self):
        """A copy of what is shipped, where commands of the document may change it."""
        copy = self.folder / "checkout"
        if not copy.exists():
            shutil.copytree(FOLDER, copy / "deploy" / "kubernetes")
        return copy


def pods_alone(item):
    """The pods of an object that only an operator knows, as objects that the server knows."""
    found, left = [], [item["spec"]]
    while left:
        each = left.pop()
        if isinstance(each, dict) and "template" in each:
            found.append(each["template"])
        elif isinstance(each, dict | list):
            left += each.values() if isinstance(each, dict) else each
    name = item["metadata"]["name"]
    meta = [{"name": f"{name}-{number}", "namespace": "asd"} for number in range(len(found))]
    return [
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": each, "template": template}
        for each, template in zip(meta, found, strict=True)
    ]


@pytest.fixture(scope="module")
def cluster(start):
    return Cluster(start)


def test_the_server_takes_every_manifest_and_knows_every_field_of_it(cluster, tmp_path):
    """`kubectl --validate=strict` reads the server's schema. Of what only an operator knows, the pods are looked at.

    The server of Debian 12 ends when it gets an object of a CustomResourceDefinition, so there are none here.
    """
    everything = rendered("base", "tls", "mindcluster")
    for path in sorted((FOLDER / "jobs").iterdir()):
        for item in yaml.safe_load_all(path.read_text()):
            known = item["apiVersion"] in ("v1", "batch/v1", "rbac.authorization.k8s.io/v1")
            everything += [item] if known else pods_alone(item)
    for space in ("asd", "training", "mindx-dl"):  # nothing goes into a namespace that is only tried
        cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": space}})
    tried = [item for item in everything if item["kind"] != "Namespace"]
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all(tried))
    told = cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", file)
    assert told.count("(server dry run)") == len(tried) > 20
    broken = next(item for item in everything if item["kind"] == "DaemonSet")
    broken["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    file.write_text(yaml.safe_dump(broken))
    assert "livenessProb" in cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", file, fails=True)


def strikes(cluster, node):
    """Has the training in a job's pod begin, once that is there."""
    (status,) = eventually(lambda: [*(cluster.folder / node).rglob("status-rank0.json")], PATIENCE)
    assert status.parent.name == "training"
    (status.parent / "go").touch()


def command(pattern):
    """The one block of the document's commands in which a text occurs."""
    blocks = re.findall(r"^```sh\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)
    (block,) = [block for block in blocks if pattern in block]
    return block


def lines(block, *patterns):
    return "\n".join(line for line in block.splitlines() if any(pattern in line for pattern in patterns))


def acting(context=None):
    return [address for address in HANDLERS.values() if metric(address, 9465, "asd_handler_acting", context) == 1]


def test_from_the_files_of_a_training_to_a_cordoned_node_and_back(cluster):
    cluster.kubectl("apply", "-k", FOLDER)
    dry = cluster.run_all("dry")
    for address in AGENTS.values():
        with pytest.raises(OSError, match="503"):
            get(f"http://{address}:9464/readyz")  # no job has left anything
    for address in dry:
        assert eventually(lambda: get(f"http://{address}:9465/readyz"), PATIENCE)  # noqa: B023

    cluster.start_job("node-a")
    strikes(cluster, "node-a")
    # Three strikes, and the 30 s that the last one waits for others.
    for address in dry:  # both count, and one would do it
        eventually(lambda: metric(address, 9465, 'asd_handler_actions_total{action="would-isolate"}'), PATIENCE)  # noqa: B023
    assert get(f"http://{AGENTS['node-a']}:9464/readyz")
    assert len(acting()) == 1
    assert not cluster.is_out("node-a")
    suspects = {name: suspects_at(address) for name, address in AGENTS.items()}
    assert suspects == {"node-a": [("node-a", "1.0")], "node-b": []}

    # In earnest, as the document says.
    for pod, _ in dry.values():
        cluster.end(pod)
    block = command("s/# - in-earnest/")
    cluster.shell(lines(block, "sed ", "apply"), cluster.checkout())
    earnest = cluster.run_all("earnest")
    eventually(lambda: cluster.is_out("node-a"), PATIENCE)
    assert not cluster.is_out("node-b")
    conditions = {each["type"]: each for each in cluster.node("node-a")["status"]["conditions"]}
    assert conditions["AsdSilentCorruption"]["status"] == "True"
    assert conditions["AsdSilentCorruption"]["message"].startswith("80818C00: faulty devices: Ascend:3")
    assert conditions["AsdSilentCorruption"]["message"] in cluster.shell(lines(block, "get nodes"), cluster.folder)

    # The one that acts is killed, and the other takes over with what counts: nobody is taken out twice, none is lost.
    version = cluster.node("node-a")["metadata"]["resourceVersion"]
    (first,) = acting()
    (second,) = set(HANDLERS.values()) - {first}
    cluster.start_job("node-b", "training")
    cluster.kill(earnest[first][0])
    killed = time.monotonic()
    strikes(cluster, "node-b")
    eventually(lambda: metric(second, 9465, "asd_handler_acting") == 1, PATIENCE)
    took = time.monotonic() - killed
    print(f"the standby acted {took:.1f} s after the other was killed")
    assert took < 30
    eventually(lambda: cluster.is_out("node-b"), PATIENCE)
    assert cluster.node("node-a")["metadata"]["resourceVersion"] == version
    assert isolations(cluster) == ["node-a", "node-b"]
    for space in ("asd", "training"):
        cluster.end(f"training-{space}")

    # And back, by the commands of the document.
    pod, execute = earnest[second]
    assert cluster.shell(lines(block, "get lease"), cluster.folder).rpartition("_")[0] == pod
    for node in AGENTS:
        words = re.findall(r"-- (asd devices release .*)", block)[0].replace("node7", node).split()
        program = execute(*words)
        assert program.process.wait(PATIENCE) == 0, program.text
        eventually(lambda: not cluster.is_out(node), PATIENCE)  # noqa: B023
    for pod in list(cluster.running):
        cluster.end(pod)


def test_with_certificates_nobody_else_is_let_in_and_the_handlers_still_find_the_agents(cluster):
    files = cluster.folder / "certificates"
    files.mkdir()
    checkout = cluster.checkout()
    shutil.copy(FOLDER / "kustomization.yaml", checkout / "deploy" / "kubernetes")  # no longer in earnest
    block = command("asd-agent asd-handler asd-prometheus")
    (files / "deploy").symlink_to(checkout / "deploy")
    cluster.shell(block, files)
    cluster.run_all("tls")
    prometheus = unverified()
    prometheus.load_cert_chain(files / "tls.crt", files / "tls.key")  # the last that were made
    for address, port in [*((each, 9464) for each in AGENTS.values()), *((each, 9465) for each in HANDLERS.values())]:
        assert not any(lets_in(address, port, context) for context in (None, unverified()))
        assert lets_in(address, port, prometheus)
    cluster.kubectl("-n", "asd", "delete", "job", "training")
    shutil.rmtree(cluster.folder / "node-a" / "var/lib/asd/runs/training")
    cluster.start_job("node-a")
    strikes(cluster, "node-a")
    for address in HANDLERS.values():
        series = 'asd_handler_actions_total{action="would-isolate"}'
        eventually(lambda: metric(address, 9465, series, prometheus), PATIENCE)  # noqa: B023
    assert len(acting(prometheus)) == 1
    for pod in list(cluster.running):
        cluster.end(pod)


def lets_in(address, port, context):
    try:
        return bool(get(f"http{'s' * bool(context)}://{address}:{port}/metrics", context))
    except OSError:
        return False


def unverified():
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def isolations(cluster):
    """The nodes that Events tell of, one for each isolation."""
    events = json.loads(cluster.kubectl("get", "events", "-o", "json"))["items"]
    return [each["involvedObject"]["name"] for each in events if each["reason"] == "AsdIsolated"]


def suspects_at(address):
    return re.findall(r'^asd_device_suspect{.*node="(.*?)".*} (.*)$', get(f"http://{address}:9464/metrics"), re.M)
