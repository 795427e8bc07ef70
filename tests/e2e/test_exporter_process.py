"""`asd exporter` as a process of its own, beside processes that train: scraped, killed, started again."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import asd
from tests.support.waiting import wait_for

NO_RUN = "no run was found"
ROOT = str(Path(asd.__file__).parents[1])
PATIENCE_SECONDS = 10.0
"""So long it would wait for a client that says nothing more."""


def environment():
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NPU_ASD_", "ASD_"))}
    return {**kept, "PYTHONPATH": ROOT}


class Exporter:
    """A running `asd exporter`."""

    def __init__(self, folder):
        command = [sys.executable, "-m", "asd", "exporter", "--run-dir", "run", "--port", "0"]
        self.process = subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE, text=True)
        self.first_line = self.process.stderr.readline()
        self.url = re.search(r"at (https?://\S+)/metrics\n", self.first_line).group(1)

    def wait_until_ready(self):
        wait_for(self.is_ready)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=20) as response:
                return response.read() == b"ready\n"
        except urllib.error.HTTPError as error:
            with error:
                return {503: b"no run was found" in error.read()}[error.code]  # then it has looked

    def end(self, number):
        """Sends a signal; returns the exit code, what else it said, and how long it took, in seconds."""
        begin = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(60)
        seconds = time.monotonic() - begin
        said = self.process.stderr.read().splitlines()
        return code, [line for line in said if NO_RUN not in line], seconds  # which a slow machine may hear before


@pytest.fixture
def exporter(tmp_path):
    with contextlib.ExitStack() as running:

        def start():
            started = Exporter(tmp_path)
            running.callback(started.process.stderr.close)
            running.callback(started.process.wait)
            running.callback(started.process.kill)
            return started

        yield start


def test_it_says_where_it_serves_and_ends_by_sigterm_without_waiting_for_a_client(exporter):
    started = exporter()
    assert re.fullmatch(r"asd: serving run at http://127\.0\.0\.1:\d+/metrics\n", started.first_line)
    started.wait_until_ready()
    with socket.create_connection(("127.0.0.1", int(started.url.rpartition(":")[2]))) as hanging:
        hanging.sendall(b"GET /met")
        code, said, seconds = started.end(signal.SIGTERM)
    assert (code, said) == (0, [])
    assert seconds < PATIENCE_SECONDS


def test_an_interrupt_ends_it_with_130(exporter):
    started = exporter()
    started.wait_until_ready()
    code, said, seconds = started.end(signal.SIGINT)
    assert (code, said) == (130, ["asd: interrupted."])
    assert seconds < PATIENCE_SECONDS


def test_a_signal_while_it_starts_is_not_lost(exporter):
    code, _, _ = exporter().end(signal.SIGTERM)
    assert code == 0
