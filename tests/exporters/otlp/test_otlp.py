"""Events and metrics to a receiver of OTLP, over real HTTP and read by OpenTelemetry's own classes."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
sys.path.insert(0, str(Path(__file__).parent))  # for receiver.py

from opentelemetry._logs import SeverityNumber
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from receiver import Receiver, values

import asd
from asd import Config, ConfigError, Event, Level
from asd.exporters.otlp.outlet import OtlpOutlet
from asd.exporters.otlp.sink import open_otlp
from asd.exporters.prometheus.event_journal import EventJournal
from asd.exporters.run_files.event_log import EventLog
from asd.measured.origin import Origin
from asd.rundir.names import event_file


def event(step=1, **changes):
    fields = {
        "run": "llama", "rank": 3, "host": "node7", "device": "Ascend:3", "step": step, "checkpoint": "a",
        "value": float("inf"), "limits": (1e6,), "level": Level.ERROR, "kind": "anomaly", "rule": "threshold",
        "feature": "l2", "reason": "r", "refused": True, "time": 1_700_000_000.25,
    }  # fmt: skip
    return Event(**{**fields, **changes})


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def receiver():
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def journal(tmp_path):
    made = EventJournal(tmp_path / "journal.sqlite")
    made.open()
    yield made
    made.close()


@pytest.fixture
def outlet(receiver, journal, tmp_path, monkeypatch):
    monkeypatch.setattr("asd.exporters.otlp.outlet._LOOK_SECONDS", 0.05)
    monkeypatch.setattr("asd.exporters.otlp.outlet._PAUSE_SECONDS", 0.05)
    monkeypatch.setattr("asd.exporters.otlp.outlet._METRICS_SECONDS", 0.05)
    monkeypatch.setattr("asd.exporters.otlp.outlet._TRY_SECONDS", 3.0)
    monkeypatch.setattr("asd.exporters.otlp.outlet._AT_ONCE", 50)
    open_ones, said = [], []

    def start(registry=None):
        made = OtlpOutlet(
            receiver.url, registry or CollectorRegistry(), journal, tmp_path / "cursor", "node7", said.append
        )
        open_ones.append(made)
        return made

    start.said = said
    yield start
    for each in open_ones:
        each.close()


def test_an_event_is_a_log_record_with_all_that_it_says(receiver, journal, outlet):
    told = event()
    journal.add([told])
    outlet()
    wait_for(lambda: receiver.logs)
    shared, record = receiver.logs[0]
    found = values(record.attributes)
    assert (shared["service.name"], shared["host.name"]) == ("asd", "node7")
    assert record.time_unix_nano == 1_700_000_000_250_000_000
    assert record.severity_number == SeverityNumber.ERROR.value
    assert record.body.string_value == told.sentence()
    assert record.event_name == "org.mindspore.asd.anomaly"
    assert found["cloudevents.event_id"] == told.id
    assert (found["asd.device"], found["asd.rank"], found["asd.step"]) == ("Ascend:3", 3, 1)
    assert (found["asd.value"], found["asd.level"], found["asd.refused"]) == (float("inf"), "first", True)
    assert [each.double_value for each in found["asd.limits"].values] == [1e6]


def test_metrics_keep_their_names_labels_kinds_and_numbers(receiver, outlet):
    registry = CollectorRegistry()
    Gauge("asd_training_active", "About.", ["node"], registry=registry).labels("node7").set(1)
    counter = Counter("asd_checks", "Checks.", ["rank"], registry=registry)
    counter.labels("0").inc(7)
    ratio = Histogram("asd_ratio", "Ratio.", ["rank"], registry=registry, buckets=(0.5, 1.0))
    for value in (0.1, 0.7, 0.8, 9.0):
        ratio.labels("0").observe(value)
    outlet(registry)
    wait_for(lambda: "asd_ratio" in receiver.metrics)
    gauge = receiver.metrics["asd_training_active"].gauge.data_points[0]
    assert (gauge.as_double, values(gauge.attributes)) == (1.0, {"node": "node7"})
    checks = receiver.metrics["asd_checks"].sum
    assert checks.is_monotonic
    assert checks.aggregation_temporality == 2  # cumulative
    assert checks.data_points[0].as_double == 7.0
    assert 0 < checks.data_points[0].start_time_unix_nano <= checks.data_points[0].time_unix_nano
    points = receiver.metrics["asd_ratio"].histogram.data_points[0]
    assert (list(points.explicit_bounds), list(points.bucket_counts)) == ([0.5, 1.0], [1, 2, 1])
    assert (points.count, points.sum) == (4, pytest.approx(10.6))


def test_a_collector_that_is_away_gets_everything_later_in_order_and_it_is_said(receiver, journal, outlet):
    receiver.code = 503
    told = [event(step) for step in range(1, 121)]
    journal.add(told)
    first = outlet()
    wait_for(lambda: outlet.said)
    assert outlet.said[0] == f"the collector at {receiver.url} takes no events; they are sent again."
    receiver.code = 200
    wait_for(lambda: len(receiver.ids) == 120)
    assert receiver.ids == [each.id for each in told]
    first.close()
    journal.add([event(5000)])
    outlet()  # as a new process
    wait_for(lambda: len(receiver.ids) == 121)
    assert receiver.ids[-1] == event(5000).id


@pytest.mark.parametrize("url", ["", "collector:4318", "ftp://a", "http://"])
def test_what_is_no_address_is_refused(journal, tmp_path, url):
    with pytest.raises(ConfigError, match="it must be an http or https address"):
        OtlpOutlet(url, CollectorRegistry(), journal, tmp_path / "cursor", "", print)


def test_the_agent_sends_events_and_metrics_with_the_headers_that_opentelemetrys_variables_give(receiver, tmp_path):
    told = [event(step, time=time.time()) for step in range(3)]
    for each in told:
        EventLog(event_file(tmp_path, 3))(each)
    environ = {
        **os.environ, "PYTHONPATH": str(Path(asd.__file__).parents[1]), "OTEL_EXPORTER_OTLP_HEADERS": "x-site=here",
        "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
    }  # fmt: skip
    command = ["exporter", "--run-dir", tmp_path, "--port", "0", "--poll", "0.05", "--otlp", receiver.url]
    agent = subprocess.Popen([sys.executable, "-m", "asd", *map(str, command)], env=environ, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: len(receiver.ids) == 3 and "asd_build_info" in receiver.metrics)
    finally:
        agent.terminate()
        agent.wait(60)
    assert receiver.ids == [each.id for each in told]
    assert {head["x-site"] for _, head in receiver.heads} == {"here"}
    assert {head["Content-Encoding"] for _, head in receiver.heads} == {"gzip"}


TRAINING = """
import sys, time
from asd import Config
from asd.measured.origin import Origin
from asd.sinks import open_sinks
sys.path.insert(0, sys.argv[2])
from test_otlp import event
sinks = open_sinks(Config.from_env({"ASD_OTLP": sys.argv[1], "ASD_RUN_DIR": sys.argv[3]}), Origin("r", 3, "n", "d"))
began = time.monotonic()
for step in range(100):
    for sink in sinks:
        if type(sink).__name__ == "OtlpSink":
            sink(event(step))
print(time.monotonic() - began)
"""


def trained(url, tmp_path):
    """How long a training waited for its sink, and how long its process took to end."""
    environ = {**os.environ, "PYTHONPATH": str(Path(asd.__file__).parents[1])}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, url, str(Path(__file__).parent), str(tmp_path)], env=environ, text=True,
        capture_output=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""
    return float(done.stdout), time.monotonic() - began


def test_a_training_sends_its_events_and_ends_without_waiting_for_a_collector_that_is_away(receiver, tmp_path):
    trained(receiver.url, tmp_path)
    assert len(set(receiver.ids)) == 100
    assert values(receiver.logs[0][1].attributes)["asd.run"] == "llama"
    receiver.code = 503
    spent, _ = trained(receiver.url, tmp_path)
    assert len(receiver.ids) == 100
    assert spent < 5


def test_without_an_address_nothing_of_opentelemetry_is_loaded(tmp_path):
    code = (
        "import sys; from asd import Config; from asd.sinks import open_sinks; from asd.measured.origin import Origin\n"
        f"open_sinks(Config(run_dir={str(tmp_path)!r}), Origin('r', 0, 'n', 'd'))\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    environ = {**os.environ, "PYTHONPATH": str(Path(asd.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ, timeout=120)


def test_an_unused_sink_does_nothing():
    assert open_otlp(Config(protection="document"), Origin("r", 0, "n", "d"))(event()) is None
