"""The metrics in files of other exporters and at a Pushgateway: never is there what one of these would refuse."""

import errno
import json
import os
import stat
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.parser import text_string_to_metric_families

from asd.errors import ConfigError
from asd.exporters.outlets import DeviceState, Outlets, device_states, write_npu_file

LABELS = ("run", "node", "rank", "id")


def content(path):
    return json.loads(path.read_text())


def registry(**gauges):
    """A registry of gauges, each a mapping from label values to the value."""
    made = CollectorRegistry()
    for name, values in gauges.items():
        gauge = Gauge(name, "x", LABELS, registry=made)
        for labels, value in values.items():
            gauge.labels(*labels).set(value)
    return made


def test_the_file_has_one_gauge_with_one_entry_per_device_and_a_time_in_microseconds(tmp_path):
    path = tmp_path / "asd.json"
    write_npu_file(path, {"3": DeviceState.ISOLATED, "0": 0, "1": 1}, lambda: 1_700_000_000.25)
    text = content(path)
    assert text.pop("desc").startswith("Silent data corruption by device: 0 healthy, 1 suspect")
    assert text == {
        "version": "1.0",
        "name": "asd_device_state",
        "timestamp": 1_700_000_000_250_000,
        "data_list": [
            {"value": 2.0, "label": {"id": "3"}},
            {"value": 1.0, "label": {"id": "1"}},
            {"value": 0.0, "label": {"id": "0"}},
        ],
    }


@given(
    devices=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64),
        st.sampled_from(DeviceState),
        max_size=300,
    )
)
def test_whatever_the_devices_the_file_keeps_to_npu_exporters_limits(tmp_path_factory, devices):
    path = tmp_path_factory.getbasetemp() / "limits.json"
    write_npu_file(path, devices)
    text = content(path)
    assert 1 <= len(text["name"]) <= 128
    assert 1 <= len(text["desc"]) <= 1024
    assert text["timestamp"] > 0
    assert type(text["timestamp"]) is int
    assert 1 <= len(text["data_list"]) <= 128
    assert {tuple(entry["label"]) for entry in text["data_list"]} == {("id",)}
    assert path.stat().st_size <= 100_000
    kept = [entry["value"] for entry in text["data_list"]]
    assert kept == sorted(devices.values() or [0], reverse=True)[:128]


def test_without_a_device_there_is_an_entry_all_the_same_as_an_empty_list_is_refused(tmp_path):
    path = tmp_path / "asd.json"
    write_npu_file(path, {})
    assert content(path)["data_list"] == [{"value": 0.0, "label": {"id": "unknown"}}]


def test_a_device_without_a_number_and_one_called_unknown_are_one_entry():
    made = registry(asd_device_suspect={("a", "n", "0", ""): 1, ("a", "n", "1", "unknown"): 0})
    assert device_states(made) == {"unknown": DeviceState.SUSPECT}


def test_the_file_is_for_owner_and_group_and_never_executable_whatever_the_umask(tmp_path):
    path = tmp_path / "asd.json"
    before = os.umask(0o077)
    try:
        write_npu_file(path, {"0": 0})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_run_as_root_the_file_belongs_to_the_owner_of_its_folder(tmp_path):
    folder = tmp_path / "npu-exporter"
    folder.mkdir()
    os.chown(folder, 9000, 9001)
    write_npu_file(folder / "asd.json", {"0": 0})
    status = (folder / "asd.json").stat()
    assert (status.st_uid, status.st_gid) == (9000, 9001)


def test_the_state_of_a_device_is_the_worst_that_any_run_knows():
    made = registry(
        asd_rank_info={
            ("a", "n", "0", "0"): 1,
            ("a", "n", "1", "1"): 1,
            ("a", "n", "2", "2"): 1,
            ("b", "n", "0", "1"): 1,
        },
        asd_device_suspect={("a", "n", "0", "0"): 0, ("a", "n", "1", "1"): 1, ("b", "n", "0", "1"): 0},
        asd_device_isolated={("a", "n", "0", "0"): 0, ("a", "n", "1", "1"): 0, ("b", "n", "2", "2"): 1},
    )
    assert device_states(made) == {"0": DeviceState.HEALTHY, "1": DeviceState.SUSPECT, "2": DeviceState.ISOLATED}


def test_the_devices_of_another_node_that_shares_the_folder_are_left_out():
    made = registry(asd_device_suspect={("a", "n1", "0", "0"): 0, ("a", "n2", "8", "0"): 1, ("a", "n2", "9", "7"): 1})
    assert device_states(made, node="n1") == {"0": DeviceState.HEALTHY}


@pytest.fixture
def suspects():
    return registry(asd_device_suspect={("r", "n1", "0", "3"): 1, ("r", "n2", "1", "4"): 0})


def test_everything_is_written_at_the_start_and_again_each_time(suspects, tmp_path):
    text, npu = tmp_path / "asd.prom", tmp_path / "npu.json"
    outlets = Outlets(suspects, textfile=text, npu_exporter_file=npu, node="n1")
    assert 'asd_device_suspect{id="3",node="n1",rank="0",run="r"} 1.0' in text.read_text()
    assert content(npu)["data_list"] == [{"value": 1.0, "label": {"id": "3"}}]
    text.unlink()
    outlets.write()
    assert text.exists()


def test_without_any_place_nothing_happens(suspects, tmp_path):
    Outlets(suspects).write()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "valid"),
    [
        ({"textfile": "asd.txt"}, "node_exporter reads only files whose names end in .prom"),
        ({"textfile": ".prom"}, "node_exporter reads only files whose names end in .prom"),
        ({"textfile": "folder.prom"}, "it must be the name of a file, and this is a folder"),
        ({"textfile": "missing/asd.prom"}, "the folder missing must exist"),
        ({"npu_exporter_file": "folder.prom"}, "it must be the name of a file, and this is a folder"),
        ({"npu_exporter_file": "missing/asd.json"}, "the folder missing must exist"),
        ({"npu_exporter_file": "link"}, "npu-exporter reads no symbolic link"),
    ],
)
def test_a_place_that_can_not_be_read_there_is_refused_at_once(tmp_path, monkeypatch, options, valid):
    monkeypatch.chdir(tmp_path)
    Path("folder.prom").mkdir()
    Path("link").symlink_to("elsewhere")
    ((option, path),) = options.items()
    with pytest.raises(ConfigError) as error:
        Outlets(CollectorRegistry(), **{option: Path(path)})
    assert (error.value.variable, error.value.value) == (f"--{option.replace('_', '-')}", path)
    assert error.value.valid == valid


def test_a_textfile_is_the_exposition_and_is_readable_for_all(tmp_path):
    made = CollectorRegistry()
    counter = Counter("asd_anomalies", "x", ("node", "level"), registry=made)
    counter.labels('n"1\n节点', "first").inc(2)
    path = tmp_path / "asd.prom"
    before = os.umask(0o077)
    try:
        Outlets(made, textfile=path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    samples = {
        (sample.name, sample.labels.get("node"), sample.labels.get("level")): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }
    assert samples["asd_anomalies_total", 'n"1\n节点', "first"] == 2
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_never_sees_half_a_file(tmp_path):
    path = tmp_path / "asd.json"
    write_npu_file(path, {"0": DeviceState.HEALTHY})
    stop = threading.Event()

    def rewrite():
        while not stop.is_set():
            write_npu_file(path, {str(number): DeviceState(number % 3) for number in range(128)})

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        seen = {len(content(path)["data_list"]) for _ in range(300)}
    finally:
        stop.set()
        thread.join()
    assert seen <= {1, 128}


def test_on_a_full_disk_the_files_before_stay_and_it_is_said(tmp_path):
    text, npu = tmp_path / "asd.prom", tmp_path / "asd.json"
    Outlets(registry(asd_step={("r", "n", "0", "0"): 1}), textfile=text, npu_exporter_file=npu)
    before = text.read_bytes(), npu.read_bytes()
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from prometheus_client import CollectorRegistry, Gauge\n"
        "from asd.exporters.outlets import Outlets\n"
        "made = CollectorRegistry()\n"
        "Gauge('asd_step', 'x' * 5000, registry=made)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "text, npu = map(Path, sys.argv[1:])\n"
        "Outlets(made, textfile=text, npu_exporter_file=npu, on_failure=print)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, text, npu], timeout=60, capture_output=True, text=True)
    reason = os.strerror(errno.EFBIG)
    assert done.stdout.splitlines() == [f"{text} can't be written: {reason}.", f"{npu} can't be written: {reason}."]
    assert (text.read_bytes(), npu.read_bytes()) == before
    assert sorted(tmp_path.iterdir()) == [npu, text]


class Recorder(BaseHTTPRequestHandler):
    def handle_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.server.requests.append((self.command, self.path, body))
        self.send_response(self.server.code)
        self.end_headers()

    do_POST = do_PUT = do_DELETE = handle_any  # noqa: N815 - the names of http.server

    def log_message(self, *args):
        pass


@pytest.fixture
def gateway():
    """A server that answers as told and remembers what it was asked."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    server.requests, server.code = [], 202
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_pushgateway_gets_one_group_of_this_node_which_is_deleted_when_asked_for(gateway, suspects):
    outlets = Outlets(suspects, push_url=gateway.url, node="n1")
    outlets.close(delete=True)
    (put, delete) = gateway.requests
    assert put[:2] == ("PUT", "/metrics/job/asd/instance/n1")
    assert 'asd_device_suspect{id="3",node="n1",rank="0",run="r"} 1.0' in put[2]
    assert delete[:2] == ("DELETE", "/metrics/job/asd/instance/n1")


def test_a_failure_is_said_in_one_sentence_and_the_others_are_written(gateway, suspects, tmp_path):
    text, told = tmp_path / "asd.prom", []
    gateway.code = 400
    outlets = Outlets(suspects, textfile=text, push_url=gateway.url, on_failure=told.append)
    assert told == [f"the metrics can't be pushed to {gateway.url}: HTTP Error 400: Bad Request."]
    assert text.exists()
    outlets.close(delete=True)
    assert told[1:] == [f"the metrics at {gateway.url} can't be deleted: HTTP Error 400: Bad Request."]


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:9091", "ftp://x", "http://", "http://x:99999", "http://x:0", "http://[::1"]
)
def test_an_address_that_is_none_is_refused_before_anything_is_sent(url):
    with pytest.raises(ConfigError, match="--push .* it must be an http or https address such as"):
        Outlets(CollectorRegistry(), push_url=url)
