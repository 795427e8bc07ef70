"""`/devices` of a handler: what `asd devices --json` prints, while the handler is at work."""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from asd.cli import main
from asd.exporters.http.routes import start_server
from asd.exporters.prometheus.device_page import DevicePage
from asd.handler import FaultHandler, NoIsolator, Policy, Store
from asd.handler.db.agent_rows import SilentAgent, note_silent
from tests.support.events import event_maker, growing

event = event_maker(run="llama", rank=3, device="Ascend:3", value=growing, time=lambda step: time.time())


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "handler.sqlite")
    yield made
    made.close()


@pytest.fixture
def handler(store):
    return FaultHandler(store, Policy(), NoIsolator(store), lambda _event: None, from_beginning=True)


@pytest.fixture
def server(store):
    page = DevicePage(store)
    running = start_server(registry=CollectorRegistry(), ledger_events=list, ready=str, port=0, devices=page)
    yield running
    running.close()
    page.close()


def ask(server, query=""):
    with urllib.request.urlopen(f"{server.url}/devices{query}") as response:
        assert response.headers["Content-Type"] == "application/json"
        return response.read().decode()


def names(server):
    return [f"{each['host']} {each['device']}" for each in json.loads(ask(server))]


def test_it_is_what_the_command_prints(store, handler, server, capsys):
    handler.handle(event(kind="replay", verdict="persistent"))
    handler.handle(event(2, "node8"))
    with store.transaction():
        note_silent(store, {"node8:9464": SilentAgent("node8", 1e9, "Connection refused")})
    served = ask(server)
    assert main(["devices", "--json", "--state", str(store.path)]) == 0
    assert served == capsys.readouterr().out
    assert [each["unheard_since"] for each in json.loads(served)] == [None, "2001-09-09T01:46:40+00:00"]


def test_a_filter_is_refused_in_a_sentence(server):
    with pytest.raises(urllib.error.HTTPError) as failure:
        ask(server, "?node=node7")
    assert failure.value.code == 400
    assert json.load(failure.value) == {"error": "/devices takes no filter; it has all devices."}


def test_who_asks_neither_sees_half_a_transaction_nor_takes_a_lock_from_the_handler(store, handler, server, tmp_path):
    handler.handle(event())
    assert names(server) == ["node7 Ascend:3"]
    with store.transaction():
        handler.triage.strikes.device("node9", "Ascend:0", 0, time.time())
        assert names(server) == ["node7 Ascend:3"]
        # Another process still can't write, as it could if reading had ended the locks of this one.
        other = "import sqlite3, sys; sqlite3.connect(sys.argv[1], timeout=0.1).execute('BEGIN IMMEDIATE')"
        assert b"database is locked" in run(other, store.path)
    assert names(server) == ["node7 Ascend:3", "node9 Ascend:0"]


def run(program, *arguments):
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True).stderr
