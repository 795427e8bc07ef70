"""The isolators `kubernetes` and `clusterd` on a real API server."""

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
from real_programs import binary

sys.path.insert(0, str(Path(__file__).parents[1] / "exporters" / "isolators"))

from isolator_conformance import EVENT, WHY, Conformance, NodesThatComeAndGo
from isolator_engines import FAR, ONE, ConfigMapEngine, KubeEngine

from asd.isolator import IsolationOwner
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(find_spec("lightkube") is None, reason="needs the extra k8s"),
    pytest.mark.skipif(shutil.which("kube-apiserver") is None, reason="build_kube_apiserver.sh builds kube-apiserver"),
]
MANIFESTS = Path(__file__).parents[2] / "deploy" / "kubernetes"
TOKEN, HANDLER = "of-the-administrator", "of-the-handler"


class Server:
    """etcd and an API server on loopback; nothing else of a cluster is needed.

    Attributes:
        audit: A line for each change of a node, with what was sent and answered.
    """

    def __init__(self, start):
        folder = start.folder / "kubernetes"
        folder.mkdir()
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        urls = {"listen-client": client, "advertise-client": client, "listen-peer": peer}
        urls["initial-advertise-peer"] = peer
        options = [f"--{name}-urls={url}" for name, url in urls.items()]
        place = f"--data-dir={folder / 'etcd'}", f"--initial-cluster=default={peer}"
        start(binary("etcd"), *place, *options, ready=f"{client}/health")
        key, tokens, port = folder / "key", folder / "tokens", free_port()
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        account = "system:serviceaccount:asd:asd-handler"
        tokens.write_text(
            f'{TOKEN},admin,1,"system:masters"\n{HANDLER},{account},2,"system:serviceaccounts,system:authenticated"\n'
        )
        self.audit, policy = folder / "audit.log", folder / "policy.json"
        nodes = {"level": "RequestResponse", "verbs": ["patch"], "resources": [{"group": "", "resources": ["nodes"]}]}
        kinds = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"]}
        policy.write_text(json.dumps({**kinds, "rules": [nodes, {"level": "None"}]}))
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.url = f"https://127.0.0.1:{port}"
        self.certificate = folder / "certs" / "apiserver.crt"
        options = f"""
            --etcd-servers={client} --bind-address=127.0.0.1 --secure-port={port} --advertise-address=127.0.0.1
            --endpoint-reconciler-type=none --cert-dir={folder / "certs"} --token-auth-file={tokens}
            --authorization-mode=RBAC --service-account-key-file={key} --service-account-signing-key-file={key}
            --service-account-issuer=https://127.0.0.1 --service-cluster-ip-range=10.0.0.0/24
            --audit-log-path={self.audit} --audit-policy-file={policy} --disable-admission-plugins=ServiceAccount
        """
        start(binary("kube-apiserver"), *options.split(), ready=f"{self.url}/readyz", context=self.context)


def _kill(process):
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)


class _Real:
    failures = {}  # noqa: RUF012 - never changed
    least_deaths = 0

    def crashes(self, device, action, at):
        def arm(pid):
            process = os.pidfd_open(pid)  # a number may be another process' by then
            handles.append(process)
            # Closely at first, and then further and further apart: on a busy machine an action takes seconds.
            timers.append(threading.Timer(0.008 * at * 1.25 ** max(0, at - 15), _kill, (process,)))
            timers[-1].start()

        # A real server can't be told when to kill who asks it, so time decides.
        handles, timers = [], []
        try:
            return self._child(device, action, None, arm).returncode == -9
        finally:
            for timer, process in zip(timers, handles, strict=True):
                timer.cancel()
                timer.join()
                os.close(process)

    def request(self, method, path, body=None):
        with contextlib.suppress(OSError):
            self.api(method, path, body, "application/json")

    def leave(self, name):
        self.request("DELETE", f"/api/v1/nodes/{name}")

    def come(self, name):
        taint = {"key": "theirs", "value": "x", "effect": "NoSchedule"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {"taints": [taint]}}
        self.api("POST", "/api/v1/nodes", node, "application/json")

    def reset(self):
        for name in ("n0", "n1"):
            self.leave(name)
            self.come(name)
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": "mindx-dl"}})
        self.request("DELETE", "/api/v1/namespaces/mindx-dl/configmaps/asd-public-fault")
        for name in ("n0", "n1"):
            self.request("DELETE", f"/api/v1/namespaces/kube-system/configmaps/mindx-dl-deviceinfo-{name}")
        return self


class RealKubeEngine(_Real, KubeEngine):
    pass


class RealConfigMapEngine(_Real, ConfigMapEngine):
    pass


@pytest.fixture(scope="module")
def server(start):
    """One API server serves all tests here."""
    return Server(start)


class TestKubernetes(Conformance, NodesThatComeAndGo):
    @pytest.fixture
    def engine(self, server, tmp_path):
        return RealKubeEngine(tmp_path, server.url, TOKEN, context=server.context).reset()


class TestClusterD(Conformance):
    @pytest.fixture
    def engine(self, server, tmp_path):
        return RealConfigMapEngine(tmp_path, server.url, TOKEN, context=server.context).reset()


@pytest.fixture
def nodes(server, tmp_path):
    """The administrator's view."""
    return RealKubeEngine(tmp_path, server.url, TOKEN, context=server.context).reset()


def test_the_shipped_roles_are_enough_for_both_isolators_and_allow_nothing_else(nodes, server, tmp_path):
    yaml = pytest.importorskip("yaml")
    paths = {"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings"}
    texts = [
        (MANIFESTS / name).read_text()
        for name in ("base/namespace.yaml", "base/account.yaml", "mindcluster/roles.yaml")
    ]
    for item in (item for text in texts for item in yaml.safe_load_all(text)):
        scope = f"namespaces/{item['metadata'].get('namespace')}/"
        if item["kind"] in paths:
            nodes.request("POST", f"/apis/rbac.authorization.k8s.io/v1/{paths[item['kind']]}", item)
        elif item["kind"] in ("Role", "RoleBinding"):
            nodes.api(
                "POST", f"/apis/rbac.authorization.k8s.io/v1/{scope}{item['kind'].lower()}s", item, "application/json"
            )
        else:
            root = "namespaces" if item["kind"] == "Namespace" else f"{scope}serviceaccounts"
            nodes.api("POST", f"/api/v1/{root}", item, "application/json")
    (tmp_path / "handler").mkdir()
    handler = KubeEngine(tmp_path / "handler", server.url, HANDLER, context=server.context)
    reports = ConfigMapEngine(tmp_path / "handler", server.url, HANDLER, context=server.context)
    for engine in (handler, reports):
        isolator = engine.make()
        isolator.isolate(ONE, WHY, EVENT)
        isolator.isolate(FAR, WHY, EVENT)
        isolator.release(ONE)
        assert (isolator.held(ONE), isolator.held(FAR)) == (IsolationOwner.FREE, IsolationOwner.OURS)
    for method, path in (
        ("DELETE", "/api/v1/nodes/n0"),
        ("GET", "/api/v1/namespaces/kube-system/secrets"),
        ("GET", "/api/v1/pods"),
        ("DELETE", "/api/v1/namespaces/mindx-dl/configmaps/asd-public-fault"),
    ):
        with pytest.raises(OSError, match="403"):
            handler.api(method, path)
