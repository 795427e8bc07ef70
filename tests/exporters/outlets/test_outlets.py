"""Outlets: the metrics go to every place that was asked for, and trouble with one keeps none of the others from it."""

import json

import pytest
from prometheus_client import CollectorRegistry, Gauge

from asd import ConfigError
from asd.exporters.outlets.outlets import Outlets


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    suspect = Gauge("asd_device_suspect", "h", ("run", "node", "rank", "id"), registry=registry)
    suspect.labels("r", "n1", "0", "3").set(1)
    suspect.labels("r", "n2", "1", "4").set(0)
    return registry


def test_everything_is_written_at_the_start_and_again_each_time(registry, tmp_path):
    text, npu = tmp_path / "asd.prom", tmp_path / "npu.json"
    outlets = Outlets(registry, textfile=text, npu_exporter_file=npu, node="n1")
    assert 'asd_device_suspect{id="3",node="n1",rank="0",run="r"} 1.0' in text.read_text()
    assert json.loads(npu.read_text())["data_list"] == [{"value": 1.0, "label": {"id": "3"}}]
    text.unlink()
    outlets.write()
    assert text.exists()


def test_a_failure_is_told_in_one_sentence_and_the_others_are_written(registry, tmp_path):
    text, told = tmp_path / "asd.prom", []
    outlets = Outlets(registry, textfile=text, push_url="http://127.0.0.1:9", on_failure=told.append)
    assert len(told) == 1
    assert told[0].startswith("the metrics can't be pushed to http://127.0.0.1:9: ") or "127.0.0.1:9" in told[0]
    assert told[0].endswith(".")
    assert not told[0].endswith("..")
    text.unlink()
    outlets.close(delete=True)
    assert not text.exists()  # it only deletes what was pushed
    outlets.close()
    assert text.exists()
    assert len(told) == 2


def test_without_any_place_nothing_happens(registry, tmp_path):
    Outlets(registry).write()
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "value"), [("textfile", "no_end"), ("npu_exporter_file", "."), ("push_url", "gopher://x")]
)
def test_a_wrong_place_is_an_error_at_once(registry, tmp_path, option, value):
    place = value if option == "push_url" else tmp_path / value
    with pytest.raises(ConfigError):
        Outlets(registry, **{option: place})
