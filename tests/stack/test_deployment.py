"""The shipped deployment on a real API server: from the files of a training in a pod to a cordoned node.

The manifests are applied as they are, by kubectl. `kubelet.py` runs the pods, for an API server runs none.
"""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kubelet import Kubelet, devices, metric
from real_programs import PATIENCE, binary, eventually, get
from test_kubernetes import TOKEN, RealKubeEngine, Server

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from manifests import FOLDER, rendered

yaml = pytest.importorskip("yaml")
HERE = Path(__file__).parent
DOCUMENT = FOLDER.parents[1] / "docs" / "operations.md"
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(shutil.which("kube-apiserver") is None, reason="build_kube_apiserver.sh builds kube-apiserver"),
    pytest.mark.skipif(
        subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0, reason="needs to mount"
    ),
]
AGENTS = {"node-a": "127.0.1.1", "node-b": "127.0.1.2"}
HANDLER, JOB = "127.0.1.9", "127.0.1.20"


def handler_help():
    return subprocess.run([sys.executable, "-m", "asd", "handler", "--help"], capture_output=True, text=True).stdout


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
            self.nodes[name] = Kubelet(start, self.server, self.ask, name, disk, start.folder / "claims", app)

    def ask(self, method, path, body=None, kind="application/json"):
        return self.ask_as_it_is(method, path, body, kind)

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

    def end(self, pod):
        node, program, options = self.running.pop(pod)
        self.nodes[node].remove(pod, program, **options)

    def deploy(self, *changes):
        """Applies what is shipped, after changes of its kustomization by sed."""
        copy = self.folder / f"deploy{len(changes)}"
        shutil.copytree(FOLDER, copy)
        for change in changes:
            subprocess.run(["sed", "-i", change, copy / "kustomization.yaml"], check=True)
        self.kubectl("apply", "-k", copy)


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
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": f"{name}-{number}", "namespace": "asd"},
            "template": each,
        }
        for number, each in enumerate(found)
    ]


@pytest.fixture(scope="module")
def cluster(start):
    return Cluster(start)


def test_the_server_takes_every_manifest_and_knows_every_field_of_it(cluster, tmp_path):
    """`kubectl --validate=strict` reads the server's schema. Of what only an operator knows, the pods are looked at.

    The server of Debian 12 ends when it gets an object of a CustomResourceDefinition, so there are none here.
    """
    everything = rendered("base", "runs-in-claim", "standby", "mindcluster")
    for path in sorted((FOLDER / "jobs").iterdir()):
        for item in yaml.safe_load_all(path.read_text()):
            known = item["apiVersion"] in ("v1", "batch/v1")
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


def statuses(cluster, node):
    """What ranks have left on a node and in the claim."""
    return [
        *(cluster.folder / node).rglob("status-rank0.json"),
        *(cluster.folder / "claims").rglob("status-rank0.json"),
    ]


def strikes(cluster, node):
    """Has the training in a job's pod begin, once that is there."""
    found = eventually(lambda: statuses(cluster, node), PATIENCE)
    (status,) = found
    assert status.parent.name == "training"
    (status.parent / "go").touch()


def test_from_the_files_of_a_training_to_a_cordoned_node_and_back(cluster):
    cluster.kubectl("apply", "-k", FOLDER)
    for name, address in AGENTS.items():
        cluster.run(name, "daemonset", "asd-agent", f"agent-{name}", address)
    container, _ = cluster.run("node-b", "deployment", "asd-handler", "handler-1", HANDLER)
    with pytest.raises(OSError, match="503"):
        get(f"http://{HANDLER}:9465/readyz")  # no job has left anything

    cluster.kubectl("create", "-f", FOLDER / "jobs" / "plain.yaml")
    cluster.run("node-a", "job", "training", "training-x", JOB)
    cluster.nodes["node-b"].is_live(container, HANDLER, "readinessProbe")
    strikes(cluster, "node-a")
    # Three strikes, and the 30 s that the last one waits for others.
    eventually(lambda: metric(HANDLER, 9465, 'asd_handler_actions_total{action="would-isolate"}'), PATIENCE)
    assert [(each["host"], each["device"], each["state"]) for each in devices(HANDLER)] == [
        ("node-a", "Ascend:3", "dry")
    ]
    assert not cluster.is_out("node-a")
    suspects = {name: suspects_at(address) for name, address in AGENTS.items()}
    assert suspects == {"node-a": [("node-a", "1.0")], "node-b": []}

    # In earnest, as the document says.
    cluster.end("handler-1")
    (change,) = re.findall(r"^sed -i '(.*)' deploy/kubernetes/kustomization.yaml$", DOCUMENT.read_text(), re.M)
    cluster.deploy(change)
    container, _ = cluster.run("node-b", "deployment", "asd-handler", "handler-2", HANDLER)
    assert "--dry-run" not in container["args"]
    eventually(lambda: cluster.is_out("node-a"), PATIENCE)
    assert not cluster.is_out("node-b")
    conditions = {each["type"]: each for each in cluster.node("node-a")["status"]["conditions"]}
    assert conditions["AsdSilentCorruption"]["status"] == "True"
    assert conditions["AsdSilentCorruption"]["message"].startswith("80818C00: isolated are Ascend:3")
    cluster.end("training-x")

    # Killed and started anew it isolates nobody twice.
    version = cluster.node("node-a")["metadata"]["resourceVersion"]
    cluster.end("handler-2")
    _, execute = cluster.run("node-b", "deployment", "asd-handler", "handler-3", HANDLER)
    eventually(lambda: metric(HANDLER, 9465, "asd_handler_last_look_timestamp_seconds"), PATIENCE)
    assert [(each["host"], each["state"]) for each in devices(HANDLER)] == [("node-a", "isolated")]
    time.sleep(1)
    assert cluster.node("node-a")["metadata"]["resourceVersion"] == version
    assert isolations(cluster) == ["node-a"]

    # And back, by the command of the document.
    program = execute("asd", "devices", "release", "node-a", "Ascend:3")
    assert program.process.wait(PATIENCE) == 0, program.text
    eventually(lambda: not cluster.is_out("node-a"), PATIENCE)
    for pod in list(cluster.running):
        cluster.end(pod)


@pytest.mark.skipif("kubernetes:" not in handler_help(), reason="asd handler finds no agents by label yet")
def test_without_a_claim_the_handler_finds_the_agents_and_a_second_handler_takes_over(cluster):
    before = isolations(cluster)
    cluster.deploy("/^  - runs-in-claim/d", "s/# - in-earnest/- in-earnest/", "s/# - standby/- standby/")
    for name, address in AGENTS.items():
        cluster.run(name, "daemonset", "asd-agent", f"agent-{name}", address)
    others = {HANDLER: "127.0.1.10", "127.0.1.10": HANDLER}
    executes = {
        address: cluster.run("node-b", "deployment", "asd-handler", f"handler-{address}", address)[1]
        for address in others
    }
    shutil.rmtree(cluster.folder / "claims")
    text = (FOLDER / "jobs" / "plain.yaml").read_text()
    job = yaml.safe_load(text)
    (folder,) = re.findall(r"in any namespace: (.*)$", text, re.M)
    job["metadata"]["namespace"] = "training"
    job["spec"]["template"]["spec"]["volumes"] = [yaml.safe_load(folder)]
    file = cluster.folder / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    cluster.kubectl("create", "-f", file)
    cluster.run("node-a", "job", "training", "training-y", JOB, namespace="training")
    strikes(cluster, "node-a")
    eventually(lambda: cluster.is_out("node-a"), PATIENCE)
    (acting,) = [address for address in others if metric(address, 9465, "asd_handler_acting") == 1]
    cluster.end("training-y")
    cluster.end(f"handler-{acting}")
    eventually(lambda: metric(others[acting], 9465, "asd_handler_acting") == 1, PATIENCE)
    time.sleep(2)
    assert isolations(cluster) == [*before, "node-a"]
    program = executes[others[acting]]("asd", "devices", "release", "node-a", "Ascend:3")
    assert program.process.wait(PATIENCE) == 0, program.text
    eventually(lambda: not cluster.is_out("node-a"), PATIENCE)


def isolations(cluster):
    """The nodes that Events tell of, one for each isolation."""
    events = json.loads(cluster.kubectl("get", "events", "-o", "json"))["items"]
    return [each["involvedObject"]["name"] for each in events if each["reason"] == "AsdIsolated"]


def suspects_at(address):
    return re.findall(r'^asd_device_suspect{.*node="(.*?)".*} (.*)$', get(f"http://{address}:9464/metrics"), re.M)
