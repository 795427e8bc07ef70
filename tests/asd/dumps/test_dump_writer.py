"""What a dump says of a tensor, and that nothing of it is lost."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from asd.dumps.formats.new_file import check_writable
from asd.dumps.formats.statistics import crc32, statistics
from asd.dumps.record.debugger_config import DebuggerConfig
from asd.dumps.record.writer import DumpWriter
from asd.errors import ConfigError

VALUES = [1, -2, 0]


def test_the_check_sums_are_those_of_other_tools():
    assert crc32(np.array(VALUES, np.float32)) == "854d28b6"
    assert crc32(np.array(VALUES, np.float16)) == "44bc6264"
    assert crc32(np.arange(4, dtype=np.int64)) == "9100120a"


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([3, -4], np.float32), (3, -4, -0.5, 5)),
        (np.array([3, -4], np.int64), (3, -4, -0.5, 5)),
        (np.array([True, False]), (True, False, None, None)),
        (np.float32(-2).reshape(()), (-2, -2, -2, -2)),
        (np.array([3 + 4j], np.complex64), (5, 5, 5, 5)),
        (np.zeros((0, 3), np.float32), (None, None, None, None)),
        (np.array([1e300]), (np.inf, np.inf, np.inf, np.inf)),
    ],
)
def test_the_statistics_follow_the_rules_of_each_type(array, expected):
    fields, _ = statistics(array)
    assert tuple(fields.values()) == expected
    assert list(fields) == ["Max", "Min", "Mean", "Norm"]


def test_a_float16_norm_is_rounded_to_its_type_unless_precision_is_high():
    array = np.full(100, 30000, np.float16)
    assert statistics(array)[0]["Norm"] == np.inf
    assert statistics(array, high=True)[0]["Norm"] == 300000


def test_a_nan_shows_in_every_field_wherever_it_is():
    fields, moments = statistics(np.array([1, np.nan, 3], np.float32))
    assert all(np.isnan(value) for value in fields.values())
    assert moments.non_finite == 1


@given(arrays.arrays(np.float32, st.integers(1, 300), elements=st.floats(-1e6, 1e6, width=32)))
def test_the_norm_is_that_of_float64_and_the_extremes_are_exact(array):
    fields, _ = statistics(array)
    assert (fields["Max"], fields["Min"]) == (array.max(), array.min())
    assert fields["Norm"] == pytest.approx(np.linalg.norm(array.astype(np.float64)), rel=1e-6)


def write_entry(writer, number):
    name = f"Mint.add.{number}.forward"
    writer.parent(name, None)
    writer.stack(name, ("File a.py, line 1, in f, \n x + y",))
    told = writer.tensor(f"{name}.input.0", np.array(VALUES, np.float32), "Float32", name)
    writer.value(name, "input_args", [0], told)
    writer.value(name, "input_kwargs", [], {})
    writer.value(name, "output", [1], {"type": "int", "value": number})


def test_a_finished_dump_has_the_documented_files_and_fields(tmp_path):
    writer = DumpWriter(tmp_path, DebuggerConfig.of({"task": "tensor"}))
    write_entry(writer, 0)
    writer.finish()
    dump = json.loads((tmp_path / "dump.json").read_text())
    numbers = {"Max": 1.0, "Min": -2.0, "Mean": pytest.approx(-1 / 3), "Norm": pytest.approx(5**0.5)}
    tensor = {"type": "mindspore.Tensor", "dtype": "Float32", "shape": [3], **numbers}
    tensor["data_name"] = "Mint.add.0.forward.input.0.npy"
    entry = {"input_args": [tensor], "input_kwargs": {}, "output": [None, {"type": "int", "value": 0}]}
    folder = str((tmp_path / "dump_tensor_data").resolve())
    head = {"task": "tensor", "level": "L1", "framework": "mindspore", "tool": "mindspore-asd"}
    assert dump == {**head, "dump_data_dir": folder, "data": {"Mint.add.0.forward": entry}}
    assert json.loads((tmp_path / "stack.json").read_text()) == {
        "Mint.add.0.forward": ["File a.py, line 1, in f, \n x + y"]
    }
    assert json.loads((tmp_path / "construct.json").read_text()) == {}  # there are no modules at L1
    assert np.load(tmp_path / "dump_tensor_data" / tensor["data_name"]).tolist() == VALUES


def test_what_was_found_to_be_outside_the_scope_is_forgotten_with_its_tensors(tmp_path):
    writer = DumpWriter(tmp_path, DebuggerConfig.of({"task": "tensor", "level": "L0"}))
    for name in ("a", "b"):
        writer.parent(name, None)
        writer.stack(name, ("File a.py",))
        writer.value(name, "output", [0], writer.tensor(f"{name}.output.0", np.ones(2, np.float32), "Float32", name))
    writer.drop("a")
    writer.finish()
    for name in ("dump.json", "stack.json", "construct.json"):
        content = json.loads((tmp_path / name).read_text())
        assert list(content.get("data", content)) == ["b"]
    assert [path.name for path in (tmp_path / "dump_tensor_data").iterdir()] == ["b.output.0.npy"]


def test_a_value_that_is_filled_up_later_stays_as_it_was_for_the_caller(tmp_path):
    empty = []
    writer = DumpWriter(tmp_path, DebuggerConfig.of({}))
    writer.value("Mint.add.0.forward", "output", [], empty)
    write_entry(writer, 0)
    assert empty == []


def test_a_value_without_a_form_in_json_ends_the_dump_and_not_the_training(tmp_path):
    said = []
    writer = DumpWriter(tmp_path, DebuggerConfig.of({}), problem=said.append)
    writer.value("Mint.add.0.forward", "output", [], 1j)
    writer.finish()
    assert ["the training continues" in each for each in said] == [True]


def test_the_dump_of_an_earlier_run_is_kept_aside_which_is_said(tmp_path, caplog):
    for _ in range(2):
        writer = DumpWriter(tmp_path / "rank0", DebuggerConfig.of({}))
        write_entry(writer, 0)
        writer.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0", "rank0.earlier1"]
    assert "which are now in" in caplog.text


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="this system has no /proc")
def test_a_folder_that_can_t_be_written_is_found_before_the_first_step_for_root_too():
    with pytest.raises(ConfigError, match="can't write in /proc"):
        check_writable(Path("/proc/nothing/here"))


def test_a_file_in_the_way_is_told_and_a_folder_that_can_be_written_stays_as_it_was(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="is not a folder"):
        check_writable(tmp_path / "file" / "dump")
    check_writable(tmp_path / "new" / "dump")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
