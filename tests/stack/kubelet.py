"""The part of a kubelet that the shipped pods need: containers, as processes of this machine."""

import base64
import os
import re
import shutil
import socket
import sys
from pathlib import Path

from real_programs import PATIENCE, eventually, get

ROOT = Path(__file__).resolve().parents[2]
SECRETS = "/var/run/secrets/kubernetes.io/serviceaccount"
_FOLDERS = ("/usr", "/etc", "/proc", "/dev", "/sys")
_START = """
set -e
hostname "$1"; shift
root=$1; user=$2; group=$3; groups=$4; temporary=$5; shift 5
mount -t tmpfs -o mode=755 tmpfs "$root"
for link in /bin /lib /lib64 /sbin; do test ! -e $link || cp -a $link "$root/" 2>/dev/null; done
if [ "$temporary" = yes ]; then mkdir "$root/tmp"; mount -t tmpfs tmpfs "$root/tmp"; fi
while [ "$1" != -- ]; do
    mkdir -p "$root$2"; mount --rbind "$1" "$root$2"
    test "$3" != ro || mount -o remount,bind,ro "$root$2"
    shift 3
done
shift
mount -o remount,ro "$root"
exec /usr/sbin/chroot "$root" setpriv --reuid $user --regid $group --groups $groups --no-new-privs --bounding-set=-all \
    --inh-caps=-all -- env -C /app "$@"
"""


class Kubelet:
    """Runs pods of one node.

    Args:
        start: See `real_programs.Starter`.
        server: The API server; see `test_kubernetes.Server`.
        ask: One request to it as the administrator: `ask(method, path, body)`.
        node: Its name; there is a Node of that name.
        folder: Where its disks are.
        app: The folder in which programs of the images begin.
    """

    def __init__(self, start, server, ask, node, folder, app):
        self.start, self.server, self.ask, self.node = start, server, ask, node
        self.folder, self.app = folder, app
        self.number = 0

    def run(self, template, name, address, namespace="asd"):
        """Runs the pod of a template under a name; returns its container's program, and how to run another in it."""
        spec = template["spec"]
        meta = {"name": name, "namespace": namespace, "labels": template["metadata"].get("labels", {})}
        account = spec.get("serviceAccountName", "default")
        fields = {"spec.nodeName": self.node, "status.podIP": address, "metadata.name": name}
        fields |= {f"metadata.labels['{key}']": value for key, value in meta["labels"].items()}
        volumes = {each["name"]: self._volume(each, name, namespace) for each in spec.get("volumes", [])}
        if spec.get("automountServiceAccountToken", True) and account != "default":
            volumes[SECRETS] = self._account(account, namespace, name)
        for first in spec.get("initContainers", []):
            done = self.start(*self._command(first, first["command"], spec, volumes, fields)[0])
            assert done.process.wait(PATIENCE) == 0, done.text
        self.ask(
            "POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": meta, "spec": {**spec, "nodeName": self.node}}
        )
        status = {"status": {"phase": "Running", "podIP": address}}
        self.ask("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/status", status, "application/merge-patch+json")
        (container,) = spec["containers"]
        words = [*container["command"], *container.get("args", [])]
        command, environ = self._command(container, words, spec, volumes, fields)
        program = self.start(*command, **environ)

        def execute(*words):
            """`kubectl exec`."""
            command, environ = self._command(container, words, spec, volumes, fields)
            return self.start(*command, **environ)

        return program, execute

    def remove(self, name, program, namespace="asd"):
        """Ends a pod, by force."""
        program.stop(patience=0.1)
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        self.ask("DELETE", path, {"gracePeriodSeconds": 0})

    def is_live(self, container, address, probe):
        """Whether the probe of a container, as `livenessProbe`, gets what it asks for."""
        how = "tcpSocket" if "tcpSocket" in container[probe] else "httpGet"
        asked = container[probe][how]
        (port,) = [each["containerPort"] for each in container["ports"] if each["name"] == asked["port"]]
        if how == "tcpSocket":
            return eventually(lambda: not socket.create_connection((address, port), 1).close(), PATIENCE)
        return eventually(lambda: get(f"http://{address}:{port}{asked['path']}"), PATIENCE)

    def _volume(self, volume, pod, namespace):
        if "hostPath" in volume:
            path = self.folder / volume["hostPath"]["path"].strip("/")
            if volume["hostPath"]["type"] == "DirectoryOrCreate":
                path.mkdir(parents=True, exist_ok=True)
            assert path.is_dir(), f"{path}: hostPath of type {volume['hostPath']['type']}"
            return path
        path = self.folder / "pods" / pod / volume["name"]
        path.mkdir(parents=True, exist_ok=True)
        os.chown(path, 0, 65532)  # what fsGroup has the kubelet do
        path.chmod(0o2775)
        for source in volume.get("projected", {}).get("sources", []):
            ((kind, named),) = source.items()
            found = self.ask("GET", f"/api/v1/namespaces/{namespace}/{kind.lower()}s/{named['name']}")
            for name, text in found["data"].items():
                (path / name).write_bytes(base64.b64decode(text) if kind == "secret" else text.encode())
                os.chown(path / name, 0, 65532)
                (path / name).chmod(volume["projected"]["defaultMode"])
        return path

    def _account(self, account, namespace, pod):
        """The folder of a service account, with a token that the API server made."""
        path = self.folder / "pods" / pod / "account"
        path.mkdir(parents=True, exist_ok=True)
        asked = {"spec": {"expirationSeconds": 3600}}
        made = self.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", asked)
        (path / "token").write_text(made["status"]["token"])
        (path / "namespace").write_text(namespace)
        shutil.copy(self.server.certificate, path / "ca.crt")
        return path

    def _command(self, container, words, spec, volumes, fields):
        environ = {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin", "HOME": "/"}
        _, _, place = self.server.url.partition("//")
        environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"] = place.split(":")
        for each in container.get("env", []):
            value = each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            environ[each["name"]] = _expanded(value, environ)
        mounts = [
            (volumes[each["name"]], each["mountPath"], "ro" if each.get("readOnly") else "rw")
            for each in container.get("volumeMounts", [])
        ]
        mounts += [(volumes[SECRETS], SECRETS, "ro")] if SECRETS in volumes else []
        packages = [path for path in sys.path if Path(path).is_absolute() and Path(path).is_dir()]
        folders = dict.fromkeys([*_FOLDERS, sys.base_prefix, sys.prefix, str(ROOT), *packages])
        binds = [str(word) for mount in mounts for word in mount]
        binds += [word for folder in folders for word in (folder, folder, "rw")]  # a checkout may be in /tmp
        self.number += 1
        root = self.folder / f"root{self.number}"
        root.mkdir(parents=True)
        binds += [str(self.app), "/app", "ro"]
        security = {**spec.get("securityContext", {}), **container.get("securityContext", {})}
        user = security.get("runAsUser", 0)
        if security.get("runAsNonRoot"):
            assert user != 0
        group = security.get("runAsGroup", user)
        temporary = "no" if security.get("readOnlyRootFilesystem") else "yes"
        identity = [user, group, security.get("fsGroup", group), temporary]
        words = [_expanded(word, environ) for word in words]
        start = ["unshare", "--mount", "--uts", "--propagation", "private", "sh", "-c", _START, "sh"]
        return [*start, fields["metadata.name"], root, *identity, *binds, "--", *words], environ


def _expanded(text, environ):
    """`$(NAME)` as Kubernetes expands it."""
    return re.sub(r"\$\((\w+)\)", lambda match: environ.get(match[1], match[0]), text)


def metric(address, port, series, context=None):
    """A figure that is served, or None."""
    for line in get(f"http{'s' * bool(context)}://{address}:{port}/metrics", context).splitlines():
        if line.startswith(f"{series} "):
            return float(line.rpartition(" ")[2])
    return None
