"""A server that speaks the part of the Kubernetes API that we use: objects, lists, patches, versions and refusals."""

import contextlib
import copy
import json
import os
import re
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

TOKEN = "let-me-in"
THEIRS = {"key": "theirs", "value": "x", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
_ROUTES = (
    (re.compile(r"/api/v1/(nodes)/([^/]+)(/status)?"), ("GET", "PATCH")),
    (re.compile(r"/api/v1/namespaces/[^/]+/(configmaps|events)/([^/]+)()"), ("GET", "PATCH")),
    (re.compile(r"/api/v1/namespaces/[^/]+/(configmaps|events)()()"), ("POST",)),
    (re.compile(r"/api/v1/namespaces/[^/]+/(pods)()()"), ("GET",)),
    (re.compile(r"/api/v1/(pods)()()"), ("GET",)),
    (re.compile(r"/apis/coordination.k8s.io/v1/namespaces/[^/]+/(leases)/([^/]+)()"), ("GET", "PUT")),
    (re.compile(r"/apis/coordination.k8s.io/v1/namespaces/[^/]+/(leases)()()"), ("POST",)),
)


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code, self.reason = code, reason


def merge(target, patch):
    """RFC 7386, the JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def strategic(target, patch):
    """The strategic merge patch, as far as a node's status needs it: conditions are merged by type."""
    conditions = {condition["type"]: condition for condition in target.get("status", {}).get("conditions", [])}
    for condition in patch["status"].get("conditions", []):
        conditions[condition["type"]] = {**conditions.get(condition["type"], {}), **condition}
    return {**target, "status": {**target.get("status", {}), "conditions": list(conditions.values())}}


class KubeServer(ThreadingHTTPServer):
    """The server.

    Attributes:
        objects: Every object by its path.
        mode: How it fails now: None, an HTTP code, "hang", "garbage", "html" or "cut".
        meanwhile: Called before each change with the path, as somebody who comes before.
        kill: `(n, pid)`: that process is killed before (even n) or after (odd n) change number n // 2.
        requests: `(method, path)` of each.
    """

    daemon_threads = True

    def __init__(self, monkeypatch, folder):
        super().__init__(("127.0.0.1", 0), _Handler)
        # A client reads all authorities of the system, which takes most of its time; plain HTTP needs none.
        monkeypatch.setenv("SSL_CERT_FILE", "")
        monkeypatch.setenv("SSL_CERT_DIR", str(folder))
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.objects, self.mode, self.meanwhile, self.kill = {}, None, None, None
        self.requests, self.changes, self.version = [], 0, 100
        self.lock = threading.RLock()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self):
        self.shutdown()
        self._thread.join()
        self.server_close()

    def put(self, path, value):
        """Stores an object under a new version, unless it is as it was."""
        with self.lock:
            before = self.objects.get(path)
            value.setdefault("metadata", {})
            if before is not None and _without_version(before) == _without_version(value):
                return before
            self.version += 1
            value["metadata"]["resourceVersion"] = str(self.version)
            value["metadata"].setdefault("uid", f"uid-{self.version}")
            value["metadata"].setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
            self.objects[path] = value
            return value

    def node(self, name, **spec):
        """Makes a node."""
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
        value = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": {"conditions": []}}
        return self.put(f"/api/v1/nodes/{name}", value)

    def pod(self, namespace, name, node, address, labels, phase="Running", **meta):
        """Makes a pod."""
        metadata = {"name": name, "namespace": namespace, "labels": labels, **meta}
        value = {"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node, "containers": []}, "metadata": metadata}
        value["status"] = {"phase": phase, "podIP": address}
        return self.put(f"/api/v1/namespaces/{namespace}/pods/{name}", value)

    def answer(self, method, path, kind, body, query=""):
        """The object that answers a request."""
        with self.lock:
            route = next(
                (match for pattern, methods in _ROUTES if (match := pattern.fullmatch(path)) and method in methods),
                None,
            )
            if route is None:
                raise RefusedError(404, "NotFound", "the server could not find the requested resource")
            if method == "GET":
                return self._found(path) if route.group(2) else self._listed(path, query)
            self._count(0)
            if self.meanwhile is not None:
                self.meanwhile(path)
            if method == "POST":
                changed = self._create(path, body, route.group(1))
            else:
                changed = self._replace(path, body) if method == "PUT" else self._patch(path, kind, body)
            self._count(1)
            return changed

    def _count(self, half):
        if self.kill is not None and self.kill[0] == 2 * self.changes + half:
            os.kill(self.kill[1], signal.SIGKILL)
            raise ConnectionAbortedError
        self.changes += half

    def _found(self, path):
        if path not in self.objects:
            *_, kind, name = path.split("/")
            raise RefusedError(404, "NotFound", f'{kind} "{name}" not found')
        return self.objects[path]

    def _listed(self, path, query):
        """Those with the labels asked for, in parts of as many as asked for."""
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        selectors = [each.partition("=") for each in asked.get("labelSelector", "").split(",") if each]
        wanted = {name: value for name, equals, value in selectors if equals}
        present = {name for name, equals, _ in selectors if not equals}
        every = path == "/api/v1/pods"
        found = [
            value
            for place, value in sorted(self.objects.items())
            if (place.startswith(f"{path}/") or (every and "/pods/" in place))
            and wanted.items() <= value["metadata"].get("labels", {}).items()
            and present <= value["metadata"].get("labels", {}).keys()
        ]
        first = int(asked.get("continue", 0))
        end = first + int(asked.get("limit", len(found) or 1))
        meta = {"resourceVersion": str(self.version), **({"continue": str(end)} if end < len(found) else {})}
        return {"apiVersion": "v1", "kind": "PodList", "metadata": meta, "items": found[first:end]}

    def _replace(self, path, body):
        before = self._found(path)
        if body["metadata"].get("resourceVersion") != before["metadata"]["resourceVersion"]:
            raise RefusedError(409, "Conflict", "the object has been modified")
        self._check(path, body)
        return self.put(path, copy.deepcopy(body))

    def _check(self, path, body):
        """What a server demands of a Lease: six digits after the point, and a length."""
        if "/leases" in path:
            for name in ("acquireTime", "renewTime"):
                if not re.fullmatch(r"[0-9-]+T[0-9:]+\.[0-9]{6}Z", body["spec"][name]):
                    raise RefusedError(400, "BadRequest", f"parsing time {body['spec'][name]!r}")
            if body["spec"]["leaseDurationSeconds"] <= 0:
                raise RefusedError(422, "Invalid", "spec.leaseDurationSeconds: must be greater than 0")

    def _create(self, path, body, kind):
        name, namespace = body["metadata"]["name"], re.search("/namespaces/([^/]+)/", path)[1]
        self._check(path, body)
        if kind == "events" and (body["involvedObject"].get("namespace") or "default") != namespace:
            raise RefusedError(422, "Invalid", "involvedObject.namespace: does not match event.namespace")
        if f"{path}/{name}" in self.objects:
            raise RefusedError(409, "AlreadyExists", f'{kind} "{name}" already exists')
        return self.put(f"{path}/{name}", body)

    def _patch(self, path, kind, body):
        on_status = path.endswith("/status")
        path = path.removesuffix("/status")
        before = copy.deepcopy(self._found(path))
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted not in (None, before["metadata"]["resourceVersion"]):
            raise RefusedError(409, "Conflict", "the object has been modified")
        if on_status and kind == "application/strategic-merge-patch+json":
            return self.put(path, strategic(before, body))
        if kind != "application/merge-patch+json":
            raise RefusedError(415, "UnsupportedMediaType", f"not {kind}")
        after = merge(before, body)
        taints = [(taint["key"], taint["effect"]) for taint in after.get("spec", {}).get("taints", [])]
        if len(set(taints)) != len(taints):
            raise RefusedError(422, "Invalid", "spec.taints: Duplicate value")
        if not after["metadata"].get("annotations", True):
            del after["metadata"]["annotations"]
        return self.put(path, after)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or a client waits 40 ms for what follows the head

    def do_any(self):
        server, (path, _, query) = self.server, self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server.requests.append((self.command, path))
        self.close_connection = server.mode is not None
        if server.mode == "hang":
            end = time.monotonic() + 5
            while server.mode == "hang" and time.monotonic() < end:
                time.sleep(0.01)
        elif server.mode == "garbage":
            self.reply(200, b"\x00\xffnothing of the kind", "application/json")
        elif server.mode == "html":
            self.reply(502, b"<h1>Bad Gateway</h1>", "text/html")
        elif server.mode == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
        elif server.mode is not None:
            self.refuse(RefusedError(server.mode, "Told", 'a "reason"\nof two lines'))
        else:
            self.serve(path, body, query)

    do_GET = do_PATCH = do_POST = do_PUT = do_any  # noqa: N815 - the names of http.server

    def serve(self, path, body, query):
        try:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                raise RefusedError(401, "Unauthorized", "Unauthorized")  # noqa: TRY301 - as any other
            kind = self.headers.get("Content-Type", "")
            answer = self.server.answer(self.command, path, kind, json.loads(body) if body else None, query)
            self.reply(200 if self.command != "POST" else 201, json.dumps(answer).encode(), "application/json")
        except RefusedError as error:
            self.refuse(error)
        except ConnectionAbortedError:
            self.close_connection = True

    def refuse(self, error):
        status = {
            **{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"},
            **{"message": str(error), "reason": error.reason, "code": error.code},
        }
        self.reply(error.code, json.dumps(status).encode(), "application/json")

    def reply(self, code, body, kind):
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *args):
        pass


def _without_version(value):
    return {**value, "metadata": {name: part for name, part in value["metadata"].items() if name != "resourceVersion"}}
