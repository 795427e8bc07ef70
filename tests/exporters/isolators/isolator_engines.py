"""Engines to try isolators on, each with the same few handles for the conformance test."""

import contextlib
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

from asd.exporters.isolators import make_isolator
from asd.isolator import Device

ONE = Device("n0", "Ascend:3", 3)
TWO = Device("n0", "Ascend:4", 4)
FAR = Device("n1", "Ascend:3", 11)

_CHILD = """
import json, os, signal, sys
name, options, device, action, at = json.loads(sys.argv[1])
from asd.exporters.isolators import make_isolator
from asd.isolator import Device
left = at
def hook(event, arguments):
    global left
    if event in ("os.rename", "subprocess.Popen"):
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
isolator = make_isolator(name, **options)
sys.stdout.write("ready"); sys.stdout.flush(); sys.stdin.read(1)
if at is not None:
    sys.addaudithook(hook)
getattr(isolator, action)(Device(*device), *(("why", "e" * 32) if action == "isolate" else ()))
"""


class Engine:
    """What is common: an isolator by name with options."""

    name = "none"
    # ways in which the engine fails, and whether trying again may help
    failures = {}  # noqa: RUF012 - never changed
    refuses_strangers = True  # whether a host that the engine does not know is an error
    least_deaths = 1  # so many changes an action has at least, before each of which a process may be killed

    def __init__(self, **options):
        self.options = options

    def make(self):
        """An isolator that knows nothing but what the engine says, as after a restart."""
        return make_isolator(self.name, **self.options)

    def others(self, device):
        """Somebody else takes a device out."""
        raise NotImplementedError

    def state(self):
        """What the engine holds, without times and versions."""
        raise NotImplementedError

    @contextlib.contextmanager
    def failing(self, how):
        raise NotImplementedError
        yield

    def crashes(self, device, action, at):
        """Whether a process that does this was killed with -9 at its change number `at`; else it was done before."""
        return self._child(device, action, at).returncode == -9

    def _child(self, device, action, at, before=lambda pid: None):
        words = json.dumps([self.name, self.options, list(device), action, at], default=str)
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command, folder = [sys.executable, "-c", _CHILD, words], Path(__file__).parents[3]
        with subprocess.Popen(command, cwd=folder, text=True, **pipes) as child:
            assert child.stdout.read(5) == "ready", child.stderr.read()
            before(child.pid)
            _, said = child.communicate("x", timeout=60)
        assert child.returncode in (0, -9), said
        return child


class KubeEngine(Engine):
    """A Kubernetes API server, ours or a real one."""

    name = "kubernetes"
    failures = {500: True, 429: True, 403: False, "hang": True, "garbage": True, "html": True, "cut": True}  # noqa: RUF012 - never changed

    def __init__(self, folder, url, token, server=None, context=None, **options):
        self.url, self.token, self.server, self.context = url, token, server, context
        self.kubeconfig = folder / "kubeconfig"
        cluster = {"server": url, **({"insecure-skip-tls-verify": True} if url.startswith("https") else {})}
        parts = {"clusters": [{"name": "k", "cluster": cluster}], "users": [{"name": "u", "user": {"token": token}}]}
        parts["contexts"] = [{"name": "c", "context": {"cluster": "k", "user": "u"}}]
        head = {"apiVersion": "v1", "kind": "Config", "current-context": "c"}
        self.kubeconfig.write_text(json.dumps(head | parts))
        super().__init__(kubeconfig=str(self.kubeconfig), timeout=0.5 if server else 10, **options)

    def api(self, method, path, body=None, kind="application/merge-patch+json"):
        """One request, as another client would make it."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10, context=self.context) as answer:
            return json.load(answer)

    def others(self, device):
        self.api("PATCH", f"/api/v1/nodes/{device.host}", {"spec": {"unschedulable": True}})

    def node(self, name="n0"):
        return self.api("GET", f"/api/v1/nodes/{name}")

    def leave(self, name):
        """A node is taken away."""
        del self.server.objects[f"/api/v1/nodes/{name}"]

    def come(self, name):
        """A machine comes under this name."""
        self.server.node(name)

    def state(self):
        return [self._facts(self.node(name)) for name in ("n0", "n1")]

    def _facts(self, node):
        # The real one adds and removes taints of its own.
        taints = [each for each in node["spec"].get("taints", []) if not each["key"].startswith("node.kubernetes.io/")]
        conditions = [
            (condition["type"], condition["message"])
            for condition in node["status"].get("conditions", [])
            if condition["type"] == "AsdSilentCorruption" and condition["status"] == "True"
        ]
        return node["spec"].get("unschedulable", False), taints, node["metadata"].get("annotations"), conditions

    @contextlib.contextmanager
    def failing(self, how):
        self.server.mode = how
        try:
            yield
        finally:
            self.server.mode = None

    def crashes(self, device, action, at):
        def arm(pid):
            self.server.changes, self.server.kill = 0, (at, pid)

        try:
            return self._child(device, action, None, arm).returncode == -9
        finally:
            self.server.kill = None


class ConfigMapEngine(KubeEngine):
    """ClusterD's ConfigMap, on such a server."""

    name = "clusterd"
    refuses_strangers = False  # ClusterD accepts an unknown node and ignores it

    def others(self, device):
        number = device.device.partition(":")[2]
        path, name = "/api/v1/namespaces/kube-system/configmaps", f"mindx-dl-deviceinfo-{device.host}"
        data = {"ManuallySeparateNPU": f"Ascend910-0,Ascend910-{number}"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
        self.api("POST", path, body, "application/json")

    def message(self):
        """The message in the ConfigMap; None before the first."""
        with contextlib.suppress(urllib.error.HTTPError):
            found = self.api("GET", "/api/v1/namespaces/mindx-dl/configmaps/asd-public-fault")
            return json.loads(found["data"]["PublicFault"])
        return None

    def state(self):
        return active(self.message())


def active(message):
    """The devices of a message that are out."""
    out = [fault["influence"][0] for fault in (message or {"faults": []})["faults"] if fault["assertion"] == "occur"]
    return sorted((place["nodeName"], *place["deviceIds"]) for place in out)
