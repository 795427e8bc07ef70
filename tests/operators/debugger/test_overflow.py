"""Which call overflowed, judged by values."""

import json

import numpy as np
import pytest

from asd.dumps.formats.statistics import statistics
from asd.dumps.record.overflow_record import OverflowRecord
from asd.operators.debugger.record.judged_call import (
    ALREADY,
    OVERFLOW,
    TRANSIENT,
    JudgedCall,
    accumulates,
    classify,
    trouble,
)


@pytest.mark.parametrize(
    ("expected", "arrays"),
    [
        ("", [np.float16([1, 2]), np.float32([38400, 1]), np.float64([1e300])]),
        ("extreme", [*np.float16([[1, 65504], [1, -51200], [38400, 1]]), np.float32([np.finfo(np.float32).max])]),
        ("inf", [np.float32([1, np.inf])]),
        ("nan", [np.float32([np.nan, 1]), np.float32([1, np.nan])]),
    ],
)
def test_marks_of_overflow_are_known_for_each_type(expected, arrays):
    for array in arrays:
        assert trouble(statistics(array)[1], array.dtype.name.capitalize()) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (JudgedCall(["", ""], ["inf"], 5.0, np.inf), OVERFLOW),
        (JudgedCall([""], ["extreme"], 5.0, 65504.0), OVERFLOW),
        (JudgedCall(["extreme"], ["extreme"], 3.4e38, 3.4e38), TRANSIENT),
        (JudgedCall(["inf"], ["nan"], np.inf, np.inf), ALREADY),
        (JudgedCall(["inf"], [""], np.inf, 1.0), TRANSIENT),
        (JudgedCall([""], [""], 1.0, 1.0), TRANSIENT),
    ],
)
def test_a_call_is_told_from_one_whose_inputs_overflow_already(call, expected):
    assert classify(call) == expected


def test_what_accumulates_is_atomic():
    names = ["Functional.linear.145.backward", "Mint.sum.0.forward", "Tensor.exp.0.forward", "Mint.add.0.forward"]
    assert [accumulates(name) for name in names] == [True, True, False, False]
    modules = ["Cell.linears.0.exp.Exp.forward.0", "Cell.act.Dense.backward.0", "Primitive.sum.Exp.0.forward"]
    assert [accumulates(name) for name in modules] == [False, True, False]


def test_the_record_is_json_lines_with_the_older_names(tmp_path):
    tensor = {"dtype": "Float16", "shape": [3], "Max": float("inf"), "Min": 0.0, "Mean": 1.0}
    path = OverflowRecord(tmp_path).write(1, "Functional.linear.145.backward", {"input": [tensor], "output": [tensor]})
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line[0] for line in lines] == [
        "Functional_linear_145_backward_input.0",
        "Functional_linear_145_backward_output",
    ]
    assert lines[1][3:] == ["mindspore.float16", [3], [float("inf"), 0.0, 1.0]]
    assert path.name.startswith("Overflow_info_")
    path = OverflowRecord(tmp_path).write(2, "Cell.fc.Dense.parameters_grad.0", {"weight": [tensor]})
    assert json.loads(path.read_text())[0] == "Cell_fc_Dense_parameters_grad_0_weight"
