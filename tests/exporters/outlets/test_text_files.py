"""Files for exporters that run on the node already: never there is what npu-exporter or node_exporter would refuse."""

import errno
import json
import os
import stat
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.parser import text_string_to_metric_families

from asd.errors import ConfigError
from asd.exporters.outlets.text_files import DeviceState, TextMetrics, device_states, write_textfile

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
    TextMetrics(path, clock=lambda: 1_700_000_000.25)({"3": DeviceState.ISOLATED, "0": 0, "1": 1})
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
    TextMetrics(path)(devices)
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
    TextMetrics(path)({})
    assert content(path)["data_list"] == [{"value": 0.0, "label": {"id": "unknown"}}]


def test_a_device_without_a_number_and_one_called_unknown_are_one_entry(tmp_path):
    path = tmp_path / "asd.json"
    TextMetrics(path)({"": 1, "unknown": 0})
    assert content(path)["data_list"] == [{"value": 1.0, "label": {"id": "unknown"}}]


def test_the_file_is_for_owner_and_group_and_never_executable_whatever_the_umask(tmp_path):
    path = tmp_path / "asd.json"
    before = os.umask(0o077)
    try:
        TextMetrics(path)({"0": 0})
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_run_as_root_the_file_belongs_to_the_owner_of_its_folder(tmp_path):
    folder = tmp_path / "npu-exporter"
    folder.mkdir()
    os.chown(folder, 9000, 9001)
    TextMetrics(folder / "asd.json")({"0": 0})
    status = (folder / "asd.json").stat()
    assert (status.st_uid, status.st_gid) == (9000, 9001)


@pytest.mark.parametrize(
    ("make", "valid"),
    [
        (lambda path: path.mkdir(), "it must be the name of a file, and this is a folder"),
        (lambda path: path.symlink_to("elsewhere"), "npu-exporter reads no symbolic link"),
    ],
)
def test_a_place_that_npu_exporter_refuses_is_refused_at_once(tmp_path, make, valid):
    path = tmp_path / "asd.json"
    make(path)
    with pytest.raises(ConfigError) as error:
        TextMetrics(path)
    assert (error.value.variable, error.value.value, error.value.valid) == ("--npu-exporter-file", str(path), valid)


@pytest.mark.parametrize("write", [TextMetrics, lambda path: write_textfile(path, CollectorRegistry())])
def test_a_folder_that_does_not_exist_is_refused(tmp_path, write):
    path = tmp_path / "missing" / "asd.prom"
    with pytest.raises(ConfigError, match=f"the folder {path.parent} must exist"):
        write(path)


def test_a_textfile_is_the_exposition_and_is_readable_for_all(tmp_path):
    made = CollectorRegistry()
    counter = Counter("asd_anomalies", "x", ("node", "level"), registry=made)
    counter.labels('n"1\n节点', "first").inc(2)
    path = tmp_path / "asd.prom"
    before = os.umask(0o077)
    try:
        write_textfile(path, made)
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


@pytest.mark.parametrize("name", ["asd.txt", "asd", ".prom"])
def test_a_textfile_that_node_exporter_passes_over_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"node_exporter reads only files whose names end in \.prom"):
        write_textfile(tmp_path / name, CollectorRegistry())


def test_a_reader_never_sees_half_a_file(tmp_path):
    path = tmp_path / "asd.json"
    write = TextMetrics(path)
    write({"0": 0})
    stop = threading.Event()

    def rewrite():
        while not stop.is_set():
            write({str(number): number % 3 for number in range(128)})

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        seen = {len(content(path)["data_list"]) for _ in range(300)}
    finally:
        stop.set()
        thread.join()
    assert seen <= {1, 128}


def test_on_a_full_disk_the_file_before_stays_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "asd.prom"
    write_textfile(path, registry(asd_step={("r", "n", "0", "0"): 1}))
    before = path.read_bytes()
    program = (
        "import resource, signal, sys\n"
        "from prometheus_client import CollectorRegistry, Gauge\n"
        "from asd.exporters.outlets.text_files import write_textfile\n"
        "made = CollectorRegistry()\n"
        "Gauge('asd_step', 'x' * 5000, registry=made)\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try:\n    write_textfile(sys.argv[1], made)\n"
        "except OSError as error:\n    sys.exit(error.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], timeout=60)
    assert done.returncode == errno.EFBIG
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


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
