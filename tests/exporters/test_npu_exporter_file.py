"""The file for npu-exporter: never is there what it would refuse."""

import errno
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge

from asd.errors import ConfigError
from asd.exporters.npu_exporter_file import DeviceState, NpuExporterFile, device_states, write_npu_file

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


def test_it_is_written_at_the_start_and_again_each_time(tmp_path):
    path = tmp_path / "npu.json"
    suspects = registry(asd_device_suspect={("r", "n1", "0", "3"): 1, ("r", "n2", "1", "4"): 0})
    file = NpuExporterFile(suspects, path, "n1", pytest.fail)
    assert content(path)["data_list"] == [{"value": 1.0, "label": {"id": "3"}}]
    path.unlink()
    file.write()
    assert path.exists()


@pytest.mark.parametrize(
    ("path", "valid"),
    [
        ("folder", "it must be the name of a file, and this is a folder"),
        ("missing/asd.json", "the folder missing must exist"),
        ("link", "npu-exporter reads no symbolic link"),
    ],
)
def test_a_place_that_can_not_be_read_there_is_refused_at_once(tmp_path, monkeypatch, path, valid):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("link").symlink_to("elsewhere")
    with pytest.raises(ConfigError) as error:
        NpuExporterFile(CollectorRegistry(), Path(path), "", pytest.fail)
    assert (error.value.variable, error.value.value, error.value.valid) == ("--npu-exporter-file", path, valid)


def test_on_a_full_disk_the_file_before_stays_and_it_is_said(tmp_path):
    path = tmp_path / "asd.json"
    write_npu_file(path, {"0": DeviceState.HEALTHY})
    before = path.read_bytes()
    program = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from prometheus_client import CollectorRegistry\n"
        "from asd.exporters.npu_exporter_file import NpuExporterFile\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "NpuExporterFile(CollectorRegistry(), Path(sys.argv[1]), '', print)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], timeout=60, capture_output=True, text=True)
    assert done.stdout == f"{path} can't be written: {os.strerror(errno.EFBIG)}.\n"
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
