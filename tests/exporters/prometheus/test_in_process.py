"""Metrics from the training process: off costs nothing, on shows what the training counts while it trains."""

import contextlib
import json
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

import asd
from asd import Config, ConfigError
from asd.exporters.http.routes import start_server
from asd.exporters.prometheus import in_process
from asd.exporters.prometheus.in_process import open_metrics
from asd.origin import Origin
from asd.rules.readings.reading import Reading
from asd.rules.step.monitor import Monitor
from asd.sinks import open_sinks

ORIGIN = Origin("run1", 3, "node7", "Ascend:3")
LABELS = {"run": "run1", "node": "node7", "rank": "3", "id": "3"}


@pytest.fixture
def port():
    with contextlib.closing(start_server(registry=None, ledger_events=list, ready=str, port=0)) as server:
        return server.port


@pytest.fixture(autouse=True)
def _close_endpoints():
    yield
    for endpoint in in_process._endpoints.values():
        endpoint.server.close()
    in_process._endpoints.clear()


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as response:
        return response.read().decode()


def samples(port):
    text = get(port, "/metrics")
    return {
        (sample.name, *(f"{name}={value}" for name, value in sample.labels.items() if LABELS.get(name) != value)): (
            sample.value
        )
        for family in parse_text(text)
        for sample in family.samples
    }


def train(sink, steps, value=1.0, origin=ORIGIN, checkpoints=("a",)):
    monitor = Monitor(Config(protection="document", enable=1, on_anomaly="skip"), origin, [sink])
    monitor.begin()
    for step in steps:
        monitor.judge(step, [Reading(name, value) for name in checkpoints])
    return monitor


def test_off_is_a_function_that_does_nothing():
    sink = open_metrics(Config(protection="document"), ORIGIN)
    assert sink(None) is None
    assert not hasattr(sink, "after_step")


def test_off_imports_no_prometheus_client():
    program = (
        "import sys; from asd import Config; from asd.exporters.prometheus.in_process import open_metrics; "
        "open_metrics(Config(), None); print('prometheus_client' in sys.modules, 'asyncio' in sys.modules)"
    )
    root = str(Path(asd.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_a_training_is_seen_while_it_trains(port):
    sink = open_metrics(Config(protection="document", metrics_port=port), ORIGIN)
    monitor = train(sink, range(1, 6))
    shown = samples(port)
    assert (shown["asd_steps_total",], shown["asd_training_active",]) == (5, 1)
    monitor.judge(6, [Reading("a", 2e6)])
    shown = samples(port)
    assert (shown["asd_step",], shown["asd_anomalies_total", "level=first"], shown["asd_strikes_total",]) == (6, 1, 1)
    assert [event["data"]["step"] for event in json.loads(get(port, "/events?level=first"))] == [6]
    monitor.end()
    assert samples(port)["asd_training_active",] == 0


def test_trainings_of_one_process_share_the_port(port):
    config = Config(protection="document", metrics_port=port)
    train(open_metrics(config, ORIGIN), [1, 2])
    second = replace(ORIGIN, run="run2")
    train(open_metrics(config, second), [1, 2, 3], origin=second)
    train(open_metrics(config, ORIGIN), [1])
    shown = samples(port)
    assert (shown["asd_steps_total",], shown["asd_steps_total", "run=run2"]) == (1, 3)


def test_only_so_many_trainings_of_a_process_are_kept(port):
    config = Config(protection="document", metrics_port=port)
    for number in range(40):
        open_metrics(config, replace(ORIGIN, run=f"r{number}"))
    assert [status.run for status in open_metrics(config, ORIGIN).endpoint.statuses()][-1] == "run1"
    assert len(open_metrics(config, ORIGIN).endpoint.statuses()) == 16


def test_a_server_that_hangs_never_holds_the_training_up(port, monkeypatch):
    sink = open_metrics(Config(protection="document", metrics_port=port), ORIGIN)
    begun, release = threading.Event(), threading.Event()

    class Hanging:
        def collect(self):
            begun.set()
            release.wait(20)
            return []

    sink.endpoint.server._site._registry.register(Hanging())
    scrape = threading.Thread(target=lambda: get(port, "/metrics"))
    scrape.start()
    try:
        assert begun.wait(20)
        begin = time.monotonic()
        train(sink, range(1, 100), value=2e6)
        assert time.monotonic() - begin < 5
    finally:
        release.set()
        scrape.join()


def test_a_port_in_use_is_told_with_the_way_out_and_training_goes_on(port, capsys, tmp_path):
    config = Config(protection="document", metrics_port=port, run_dir=str(tmp_path))
    taken = start_server(registry=None, ledger_events=list, ready=str, port=port)
    with contextlib.closing(taken):
        with pytest.raises(ConfigError) as caught:
            open_metrics(config, ORIGIN)
        assert str(caught.value) == (
            f"ASD_METRICS_PORT has the value {port}, which is not valid: the port is in use at 127.0.0.1; only one "
            "process of a node can have it, so for several ranks leave it unset and run `asd exporter` on the node."
        )
        sinks = open_sinks(config, ORIGIN)
        assert len(sinks) >= 1
        assert f"sink metrics can't be opened and is left out: ASD_METRICS_PORT has the value {port}" in (
            capsys.readouterr().err
        )


def test_another_wrong_address_keeps_its_own_sentence(port):
    with pytest.raises(ConfigError, match="none of this machine's"):
        open_metrics(Config(protection="document", metrics_port=port, metrics_address="192.0.2.1"), ORIGIN)


def test_a_process_that_has_trained_ends_by_itself():
    program = (
        "from asd import Config; from asd.origin import Origin\n"
        "from asd.exporters.prometheus.in_process import open_metrics\n"
        "import socket, urllib.request\n"
        "s = socket.create_server(('127.0.0.1', 0)); port = s.getsockname()[1]; s.close()\n"
        "open_metrics(Config(metrics_port=port), Origin('r', 0, 'h', 'CPU:0'))\n"
        "c = socket.create_connection(('127.0.0.1', port)); c.sendall(b'GET /met')\n"
        "print(urllib.request.urlopen(f'http://127.0.0.1:{port}/healthz').read())\n"
    )
    root = str(Path(asd.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "ignore::ResourceWarning", "-c", program],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'ok\\n'\n", "")
