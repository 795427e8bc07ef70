import csv
import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from asd.dumps.formats.slots import Slot, SlotForm
from asd.dumps.precheck.calls import Call, DtypeArgument, leaves, read_calls
from asd.dumps.precheck.rules import Judgement, judge
from asd.dumps.precheck.tables import ApiResult, Detail, Tables
from asd.errors import StateError
from tests.asd.dumps.dumps import tensor

NOW = datetime(2026, 1, 2, 3, 4, 5)
TENSOR = tensor(np.float32([[3, -2, -1], [1, -1, 0]]))


def write_dump(folder: Path, data, **more) -> Path:
    path = folder / "dump.json"
    path.write_text(json.dumps({"task": "statistics", "level": "L1", "framework": "mindspore", "data": data, **more}))
    return path


def test_forward_and_backward_of_a_call_come_together_with_their_arguments_nested(tmp_path):
    words = {"type": "mindspore.dtype", "value": "Float16"}, None, {"type": "ellipsis", "value": "..."}
    given = [[TENSOR, TENSOR], {"type": "int", "value": 1}, {"type": "slice", "value": [1, None, 2]}, *words]
    named = {"alpha": {"type": "float", "value": 0.5}, "mode": {"type": "str", "value": "sum"}}
    forward = {"input_args": given, "input_kwargs": named, "output": [TENSOR]}
    data = {"Mint.cat.0.forward": forward, "Mint.cat.0.backward": {"input": [TENSOR], "output": [[TENSOR, None]]}}
    task, (call,) = read_calls(write_dump(tmp_path, data))
    one = Slot.of(SlotForm("an argument", "input", "Float32", (2, 3)), (3.0, -2.0, 0.0, 4.0))
    assert task == "statistics"
    names = ("Mint.cat.0", "Mint.cat", "Mint.cat.0.forward", "Mint.cat.0.backward")
    given = {"args": ((one, one), 1, slice(1, None, 2), DtypeArgument("Float16"), None, ...)}
    given["kwargs"] = {"alpha": 0.5, "mode": "sum"}
    assert call == Call(*names, **given, outputs=(one,), gradients=(one,), input_gradients=((one, None),))
    assert [place for place, _ in leaves(call.input_gradients)] == [(0, 0), (0, 1)]


def test_a_backward_pass_without_its_forward_pass_is_no_call(tmp_path):
    data = {"Mint.mul.3.backward": {"input": [TENSOR], "output": [TENSOR]}}
    assert read_calls(write_dump(tmp_path, data)) == ("statistics", [])


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"input_args": {}}, "{} stands"),
        ({"input_args": [{"type": "mindspore.Tensor", "dtype": "Float32", "shape": [-1]}]}, "[-1]"),
        ({"input_args": [{"type": "int", "value": "1"}]}, "'1' stands where the dump says int"),
        ({"input_args": [{"type": "module", "value": "os"}]}, "'module'"),
        ({"input_args": [{"type": "torch.Tensor", "dtype": "x", "shape": []}]}, "it is a call of PyTorch"),
        ([], "its entry is not an object"),
    ],
)
def test_a_call_that_cannot_be_understood_is_there_with_its_problem(tmp_path, entry, sentence):
    _, (call,) = read_calls(write_dump(tmp_path, {"Mint.mul.0.forward": entry}))
    assert sentence in call.problem


def test_a_name_that_is_none_of_an_api_is_refused(tmp_path):
    with pytest.raises(StateError, match="the name of a call"):
        read_calls(write_dump(tmp_path, {"__import__('os').0.forward": {}}))


def test_modules_are_passed_over_whatever_their_names_and_are_not_all_of_a_dump(tmp_path):
    module = {"Cell.conv-1.Conv2d.forward.0": {}}
    assert len(read_calls(write_dump(tmp_path, {**module, "Mint.mul.0.forward": {}}))[1]) == 1
    with pytest.raises(StateError, match="L1 or mix"):
        read_calls(write_dump(tmp_path, module))


def test_the_limits_of_the_seeds_rule_are_strict():
    reference = np.array([1.0, 1.0])
    assert judge(np.array([1.5, 1.5]), reference, "Float64", abs_limit=0.50001).passed
    assert not judge(np.array([1.5, 1.5]), reference, "Float64", abs_limit=0.5).passed


def test_cosine_and_errors_are_those_of_the_formulas():
    judgement = judge(np.array([3.0, 4.0], np.float32), np.array([4.0, 3.0]), "Float32")
    assert judgement.cosine == (1e-8 + 24.0) / (1e-8 + 25.0)
    assert judgement.max_abs == 1.0
    assert judgement.max_relative == 1.0 / 3.0
    assert all(limit in judgement.message for limit in ("0.99;", "0.0001"))


def test_inf_at_one_side_only_is_an_error_unless_the_value_has_no_place_in_the_type():
    one, largest = np.array([np.inf, 1.0], np.float16), np.array([70000.0, 1.0])
    assert judge(one, largest, "Float16").passed
    assert not judge(one, np.array([60000.0, 1.0]), "Float16").passed
    assert not judge(np.array([np.nan, 1.0]), np.array([1.0, 1.0]), "Float32").passed
    assert judge(np.array([np.nan, np.inf]), np.array([np.nan, np.inf]), "Float32").passed


def test_the_strict_rule_knows_the_scale():
    large = np.array([1.0e6, -3.0e7])
    rounded = large.astype(np.float32) * np.float32(1 + 2**-22)
    assert not judge(rounded, large, "Float32", rule="seed").passed
    judgement = judge(rounded, large, "Float32")
    assert (judgement.passed, "rounding to Float32" in judgement.message) == (True, True)
    assert not judge(large * (1 + 2.0**-15), large, "Float32").passed
    assert judge(rounded, large, "Float32", rule="strict").passed
    small = np.array([1.0e-6, 2.0e-6])
    assert judge(small * 1.001, small, "Float32").passed
    assert not judge(small * 1.001, small, "Float32", rule="strict").passed


def test_integers_have_to_be_equal_under_the_strict_rule():
    assert judge(np.array([2**60 + 1]), np.array([2**60 + 1]), "Int64", rule="strict").passed
    judgement = judge(np.array([2**60 + 1, 3]), np.array([2**60, 3]), "Int64", rule="strict")
    assert (judgement.passed, judgement.message) == (False, "1 of 2 elements differ")


@given(arrays(np.float32, 7, elements=st.floats(-(2.0**100), 2.0**100, width=32)))
def test_a_tensor_passes_against_itself_under_both_rules(array):
    for rule in ("rounding", "seed", "strict"):
        assert judge(array, array.astype(np.float64), "Float32", rule=rule).max_abs == 0.0
    assert judge(array, array.astype(np.float64), "Float32", rule="strict").passed


JUDGEMENT = Judgement(1.0, 1.5e-08, 5.960464477539063e-08, passed=True)
DETAIL = Detail("Mint.mul.0.forward.output.0", "Float64", "Float32", (4, 16), JUDGEMENT)
RESULT_BYTES = (
    b"\xef\xbb\xbfAPI Name,Forward Test Success,Backward Test Success,Message\r\n"
    b"Mint.mul.0,pass,,\r\n"
    b"Mint.sort.0,SKIP,,no kernel\r\n"
)
DETAILS_BYTES = (
    b"\xef\xbb\xbfAPI Name,Bench Dtype,Tested Dtype,Shape,Cosine,MaxAbsErr,MaxRelativeErr,Status,Message\r\n"
    b'Mint.mul.0.forward.output.0,Float64,Float32,"(4, 16)",1.0,1.5e-08,5.960464477539063e-08,pass,\r\n'
)


def test_the_tables_have_the_documented_bytes_and_names(tmp_path):
    tables = Tables.create(tmp_path, NOW)
    tables.add(ApiResult("Mint.mul.0", "pass", "", details=[DETAIL]))
    tables.add(ApiResult("Mint.sort.0", "SKIP", "", "no kernel"))
    assert tables.result.name == "accuracy_checking_result_20260102030405.csv"
    assert tables.details.name == "accuracy_checking_details_20260102030405.csv"
    assert tables.result.read_bytes() == RESULT_BYTES
    assert tables.details.read_bytes() == DETAILS_BYTES


def test_a_message_stays_on_its_line_and_is_no_formula(tmp_path):
    tables = Tables.create(tmp_path, NOW)
    tables.add(ApiResult("Mint.mul.0", "SKIP", "", "=1+1\nsecond"))
    with tables.result.open(encoding="utf-8-sig", newline="") as file:
        assert list(csv.reader(file))[1] == ["Mint.mul.0", "SKIP", "", "'=1+1 second"]
