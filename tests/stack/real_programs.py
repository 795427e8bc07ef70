"""Real programs on loopback: each in a process group of its own, and all of them ended in any case."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import asd.exporters
from tests.support.ports import free_port
from tests.support.waiting import processes_with

SHIPPED = Path(asd.exporters.__file__).parent
RULES = SHIPPED / "alerts" / "asd_rules.yml"
MARK = "STACK_TEST_FOLDER"
"""A variable by which everything that a test started can be recognised, whatever it did to its process group."""
OURS = ("NPU_ASD_", "ASD_", "MS_", "RANK_", "DEVICE_", "GLOG_", "PYTHONPATH")
"""Settings of the one who runs the tests, which no program here gets."""


PATIENCE = 120.0
"""Seconds that a program may take to be ready on a machine that is busy."""


def binary(name):
    """The path of a program that the Makefile brings; without it the test fails, because a skipped proof is none."""
    path = shutil.which(name, path=os.path.join(sys.prefix, "share", "kubernetes")) or shutil.which(name)
    if path is None:
        pytest.fail(f"{name} is not installed; `make test-stack` brings it", pytrace=False)
    return path


def get(url, context=None, **parameters):
    """The answer's text, from a GET that may take two seconds."""
    query = "?" + urllib.parse.urlencode(parameters, doseq=True) if parameters else ""
    with urllib.request.urlopen(url + query, timeout=2, context=context) as answer:
        return answer.read().decode()


def eventually(what, seconds=30.0, every=0.1):
    """The first true result of `what()`; fails with the last one, or the last error, after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        try:
            result = what()
        except (OSError, urllib.error.HTTPError) as error:
            result, shown = None, error
        else:
            shown = result
        if result:
            return result
        assert time.monotonic() < end, f"not within {seconds} s; last seen: {shown!r}"
        time.sleep(every)


class Program:
    """A running program and what it has printed so far."""

    def __init__(self, command, folder, number, environ):
        words = [Path(str(part)).name for part in command if str(part) not in (sys.executable, "-m")]
        self.name = "-".join(words[:2]) if words[0] == "asd" else words[0]
        self.log = folder / f"{number}-{self.name}.log"
        with self.log.open("wb") as log:
            where = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
            words = [str(part) for part in command]
            self.process = subprocess.Popen(words, cwd=folder, env=environ, start_new_session=True, **where)

    @property
    def text(self):
        return self.log.read_text(errors="replace")

    def eventually(self, what, seconds=30.0):
        """As `eventually`, but ends when the program does."""

        def while_it_runs():
            assert self.process.poll() is None, f"{self.name} ended with {self.process.returncode}:\n{self.text}"
            return what()

        return eventually(while_it_runs, seconds)

    def stop(self, patience=10.0):
        """Ends the program's process group, by force when it takes longer than so many seconds."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)


def living(folder):
    """The numbers of the processes that were started for `folder`."""
    return list(processes_with(f"{MARK}={folder}\0"))


class Starter:
    """Starts programs; see `Program`."""

    def __init__(self, folder):
        self.folder = folder
        self.programs = []
        self.environ = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        self.environ[MARK] = str(folder)

    def __call__(self, *command, ready=None, context=None, **environ):
        """A running program; once it answers at the address `ready`, if that is given."""
        program = Program(command, self.folder, len(self.programs), {**self.environ, **environ})
        self.programs.append(program)
        if ready is not None:
            program.eventually(lambda: get(ready, context) or True, PATIENCE)
        return program

    def asd(self, *arguments, **options):
        """The command `asd`."""
        return self(sys.executable, "-m", "asd", *arguments, **options)

    def stop_all(self):
        """Ends everything that was started, and whatever that started."""
        for program in reversed(self.programs):
            program.stop()
        for number in living(self.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        eventually(lambda: not living(self.folder), seconds=10)

    def tell(self):
        """The end of every log; pytest shows it when a test failed."""
        for log in sorted(self.folder.rglob("*.log")):
            print(f"--- {log.relative_to(self.folder)}\n{log.read_text(errors='replace')[-3000:]}")


def node_exporter(start, target, folder):
    """Starts node_exporter at an address, with the files of a folder and nothing else."""
    options = "--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}"
    words = (binary("prometheus-node-exporter"), f"--web.listen-address={target}", *options)
    start(*words, ready=f"http://{target}/metrics")


class Prometheus:
    """A Prometheus that scrapes and evaluates every second, with the alert rules that are shipped."""

    def __init__(self, start, scrape_configs, alertmanager=None):
        folder = start.folder / "prometheus"
        folder.mkdir()
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": scrape_configs,
        }
        if alertmanager is not None:
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        files = f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"
        options = *files, f"--web.listen-address=127.0.0.1:{port}", "--enable-feature=exemplar-storage"
        self.program = start(binary("prometheus"), *options, ready=f"{self.url}/-/ready")

    def api(self, path, **parameters):
        answer = json.loads(get(f"{self.url}/api/v1/{path}", **parameters))
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression, **parameters):
        """The samples of an instant query, each as `(labels, value)`."""
        result = self.api("query", query=expression, **parameters)["result"]
        return [(sample["metric"], float(sample["value"][1])) for sample in result]

    def value(self, expression):
        """The one value of an expression; None while there is none."""
        samples = self.query(expression)
        assert len(samples) <= 1, samples
        return samples[0][1] if samples else None


class Alertmanager:
    """An Alertmanager with the route that is shipped, its receivers being `webhook`."""

    def __init__(self, start, webhook):
        folder = start.folder / "alertmanager"
        folder.mkdir()
        text = (SHIPPED / "alerts" / "alertmanager.example.yml").read_text()
        text = re.sub(r"http://127\.0\.0\.1:\d+", webhook.url, text)
        (folder / "alertmanager.yml").write_text(text)
        self.target = f"127.0.0.1:{free_port()}"
        files = f"--config.file={folder / 'alertmanager.yml'}", f"--storage.path={folder / 'data'}"
        options = *files, f"--web.listen-address={self.target}", "--cluster.listen-address="
        start(binary("prometheus-alertmanager"), *options, ready=f"http://{self.target}/-/ready")


class _Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        arrived = time.time()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.calls.append((arrived, self.path, body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        pass


class Webhook:
    """Where Alertmanager's notifications arrive."""

    def __init__(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
        self.server.calls = []
        self.port = self.server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self._thread.start()

    def alerts(self, name, path=None):
        """Every alert of that name so far, each as `(when it arrived, alert)`."""
        return [
            (arrived, alert)
            for arrived, called, body in list(self.server.calls)
            for alert in body["alerts"]
            if alert["labels"]["alertname"] == name and path in (None, called)
        ]

    def close(self):
        self.server.shutdown()
        self._thread.join()
        self.server.server_close()
