"""The other names of a device."""

import json

import pytest

from asd import ConfigError
from asd.exporters.prometheus.device_map import DeviceNames, name_device, read_device_map


@pytest.fixture
def path(tmp_path):
    return tmp_path / "devices.json"


@pytest.mark.parametrize(
    ("device", "number"), [("Ascend:3", "3"), ("CPU:0", "0"), ("a:b:12", "12"), ("unknown", ""), ("7", ""), ("x:", "")]
)
def test_without_a_map_the_id_is_the_number_behind_the_colon(device, number):
    assert name_device("node7", device) == DeviceNames(number, "")


def test_a_map_gives_physical_id_and_vdie_id(path):
    path.write_text(json.dumps({"3": {"vdie_id": "特-6B5D", "id": "11"}, "4": {"vdie_id": "X"}, "5": {}}))
    named = read_device_map(path)
    names = [named("node7", f"Ascend:{number}")[:2] for number in (3, 4, 5, 6)]
    assert names == [("11", "特-6B5D"), ("4", "X"), ("5", ""), ("6", "")]
    assert named("node7", "unknown") == DeviceNames("", "")
    named = read_device_map(path, "node7")  # devices of other machines keep their names
    assert [named(host, "Ascend:3").id for host in ("node7", "node8")] == ["11", "3"]


WRONG = ("", "[]", '{"a": {}}', '{"3": 4}', '{"3": {"id": 11}}', '{"3": {"vdie": "x"}}', '{"3": {"vdie_id": "a\\nb"}}')


@pytest.mark.parametrize("content", [*WRONG, '{"3": {"id": "1"}, "4": {"id": "1"}}', "\udcff", "[" * 100_000])
def test_a_wrong_map_is_told_with_what_is_valid(path, content):
    path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError, match="--device-map") as error:
        read_device_map(path)
    assert (error.value.value, "vdie_id" in error.value.valid) == (str(path), True)
