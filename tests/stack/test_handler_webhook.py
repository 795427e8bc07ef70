"""An alert of the real Prometheus reaches `asd handler` through the real Alertmanager, and is decided upon once."""

import json
import socket
import subprocess
import time

import pytest
from real_programs import Alertmanager, Prometheus, binary, eventually

from asd.exporters.run_files.event_log import EventLog
from asd.rules.step.status import Status
from asd.rundir.disk import write_whole
from asd.rundir.names import event_file, status_file
from tests.support.events import event_maker, made_of
from tests.support.ports import free_port

pytestmark = pytest.mark.stack

NODE = socket.gethostname()
ORIGIN = {"run": "nightly", "rank": 1, "host": NODE, "device": "Ascend:1"}


class Stack:
    """Exporter, Prometheus, Alertmanager that repeats every second, and a handler that looks only when it is woken."""

    def __init__(self, start, webhook):
        self.webhook = webhook
        self.run_dir = start.folder / "asd_run"
        self.run_dir.mkdir()
        write_whole(status_file(self.run_dir, 1), made_of(Status, **ORIGIN, step=6, steps=6, checks=6).to_json())
        ports = free_port(), free_port()
        self.handler = start.asd(
            "handler", "--run-dir", self.run_dir, "--webhook", f"127.0.0.1:{ports[0]}", "--interval", "3600", "--json"
        )
        self.handler.eventually(lambda: "alerts are taken at" in self.handler.text)
        start.asd(
            "exporter", "--run-dir", self.run_dir, "--port", ports[1], ready=f"http://127.0.0.1:{ports[1]}/healthz"
        )
        self.alertmanager = Alertmanager(start, webhook, handler=f"http://127.0.0.1:{ports[0]}", repeat="1s")
        scrapes = [{"job_name": "asd", "static_configs": [{"targets": [f"127.0.0.1:{ports[1]}"]}]}]
        self.prometheus = Prometheus(start, scrapes, self.alertmanager.target)
        eventually(lambda: self.prometheus.value('up{job="asd"}') == 1)

    def decisions(self, *actions):
        """What the handler has printed, of these actions."""
        found = [json.loads(line) for line in self.handler.text.splitlines() if line.startswith("{")]
        return [each for each in found if each["action"] in actions]

    def repeats(self, name, count):
        """Waits until Alertmanager has sent an alert to the handler's receiver so many times."""
        return self.handler.eventually(lambda: len(self.webhook.alerts(name, "/alerts")) >= count, seconds=60)

    def isolations(self):
        """The isolations that were published."""
        log = self.run_dir / "events-handler.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [event for event in map(json.loads, lines) if event["data"]["kind"] == "isolation"]


@pytest.fixture(scope="module")
def stack(start, webhook):
    """See `Stack`."""
    return Stack(start, webhook)


def test_an_alert_of_prometheus_wakes_the_handler_which_isolates_once_however_often_it_is_repeated(stack):
    log = EventLog(event_file(stack.run_dir, 1))
    event = event_maker(**ORIGIN, time=time.time())
    for told in (event(7), event(7, kind="replay", verdict="persistent")):
        log(told)
    (decision,) = stack.handler.eventually(lambda: stack.decisions("isolated"), seconds=60)
    assert decision["device"] == {"host": NODE, "device": "Ascend:1", "rank": 1}
    assert "the replay of step 7 of nightly found persistent hardware" in decision["reason"]
    assert stack.webhook.alerts("AsdAnomaly", "/alerts")  # nothing else could have woken it
    stack.repeats("AsdAnomaly", 4)
    assert len(stack.decisions("isolated", "isolating", "merged", "released")) == 1
    assert len(stack.isolations()) == 1
    assert stack.decisions("alert") == []  # the log explains it


def test_an_alert_that_no_log_explains_is_noted_once_and_isolates_nobody(stack):
    before = len(stack.isolations())
    labels = ["alertname=Handmade", "faultcode=80818C00", f"node={NODE}", "id=5"]
    subprocess.run(
        [binary("amtool"), "alert", "add", f"--alertmanager.url=http://{stack.alertmanager.target}", *labels],
        check=True,
        timeout=30,
    )
    stack.repeats("Handmade", 3)
    (note,) = stack.handler.eventually(lambda: stack.decisions("alert"))
    assert note["reason"] == f"The alert Handmade names device 5 of {NODE}, of which no event log tells."
    stack.repeats("Handmade", 5)
    assert len(stack.decisions("alert")) == 1
    assert len(stack.isolations()) == before
