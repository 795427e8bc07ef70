"""What an answer about a struck step is worth, and how the answers are counted."""

from collections import namedtuple

import numpy as np
import pytest

from benchmarks.first_wrong.strikes import AMOUNTS, judged, strike_of, summed_up

Answer = namedtuple("Answer", "kind call reason", defaults=["input.0 is the weight a.weight, and it differs"])


@pytest.mark.parametrize(
    ("answer", "kind", "expected"),
    [
        (Answer("operator", "a"), "forward", "right"),
        (Answer("operator", "b"), "forward", "wrong"),
        (Answer("weight", "b"), "weight", "right"),
        (Answer("weight", "b", "input.0 is the weight b.weight, and it differs"), "weight", "wrong"),
        (Answer("rows", "b"), "forward", "can't tell"),
        (None, "forward", "not seen"),
    ],
)
def test_an_answer_that_names_neither_the_call_nor_the_weight_is_wrong_unless_it_can_t_tell(answer, kind, expected):
    struck = "a.weight" if kind == "weight" else "a"
    assert judged(answer, kind, struck) == expected
    assert judged(answer, kind, struck, rank_right=False) == expected.replace("right", "wrong")


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_strike_changes_one_element_and_keeps_the_type(amount, dtype):
    array, log = np.linspace(1, 2, 24, dtype=dtype).reshape(4, 6), []
    changed = strike_of(3, amount, log)(array)
    assert changed.dtype == dtype
    assert (changed != array).sum() == 1
    assert log == [amount]


def test_a_strike_that_changes_nothing_is_not_counted():
    log = []
    strike_of(3, "set=1000", log)(np.full(4, 1000, np.float32))
    assert log == []


def test_each_way_is_summed_up_with_its_interval():
    counts = {"weight CRC32 right": 41, "moment not struck": 2, "data CRC32 wrong": 1}
    found = summed_up(counts, ("CRC32", "statistics"))
    assert (found["CRC32"]["faults"], found["CRC32"]["right"], found["CRC32"]["wrong"]) == (42, 41, 1)
    assert found["CRC32"]["right, of 1"] == pytest.approx((0.877, 0.996), abs=0.001)
    assert found["statistics"]["faults"] == 0
