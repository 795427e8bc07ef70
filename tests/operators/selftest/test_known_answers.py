"""The test of a device by known answers: right on a sound device, and every kind of wrong one found, in both modes."""

import math

import pytest
from test_probe import changed
from test_probe import spoil as spoil_one

from asd.errors import ConfigError, UnsupportedError
from asd.operators.rerun.pieces import PIECES
from asd.operators.rerun.vendor import stress_test
from asd.operators.selftest.known_answers import stress, use_device

SUMS = PIECES["sums"]
BFLOAT16 = {"products of bfloat16": "Select CPU operator[MatMul] fail! Unsupported data type!"}


@pytest.fixture
def cpu(clean):
    """The CPU as the device under test."""
    assert use_device("CPU", "pynative") == "CPU:0"


def spoil(monkeypatch, kind, name, spoiled, only=None):
    """As `spoil_one`; other tests are left out."""
    tests = PIECES[kind]
    for each in list(PIECES):
        monkeypatch.setitem(PIECES, each, ())
    monkeypatch.setitem(PIECES, kind, [each for each in tests if each.name == name])
    spoil_one(monkeypatch, name, spoiled, only)


def test_a_sound_device_makes_no_mistake_and_computes_everything_at_least_twice(mode):
    assert use_device("CPU", mode) == "CPU:0"
    told = []
    outcome = stress(0.0, tell=lambda seconds, count: told.append((seconds, count)))
    assert (outcome.finding, outcome.vendor_code, outcome.absent) == (None, None, BFLOAT16)
    without = [each for each in PIECES["products"] if each.group not in outcome.absent]
    assert outcome.repetitions == {kind: 2 * len(tests) for kind, tests in {**PIECES, "products": without}.items()}
    assert [count for _, count in told] == list(range(1, sum(outcome.repetitions.values()) + 1))
    assert all(math.isfinite(seconds) and seconds == 0.0 for seconds, _ in told)


@pytest.mark.parametrize(("factor", "only", "repetition"), [(1 + 2**-23, 2, 2), (math.nan, 1, 1), (0.0, 2, 2)])
def test_a_wrong_result_is_found_in_the_repetition_it_happens(monkeypatch, cpu, factor, only, repetition):
    wrong = lambda found: changed(found, slice(9, 12), lambda numbers: numbers * factor)  # noqa: E731
    spoil(monkeypatch, "products", "MatMul, float32", wrong, only)
    finding = stress(0.0).finding
    assert (finding.workload, finding.output, finding.repetition) == ("products", "MatMul, float32", repetition)
    assert 1500 < finding.wrong <= 3 * 512
    assert (
        f"{finding.wrong} of 259584 elements are wrong, in rows 9 to 11, columns 0 to 511: [9, 0] is " in finding.words
    )


def test_what_a_device_can_not_compute_is_left_out_and_told_and_nothing_at_all_is_no_test(monkeypatch, cpu):
    def refuse(_):
        raise RuntimeError("no such kernel.\nAnd more")

    spoil(monkeypatch, "products", "MatMul, float32", refuse)
    with pytest.raises(UnsupportedError, match=r": no such kernel\.$"):
        stress(0.0)
    monkeypatch.setitem(PIECES, "sums", SUMS)
    assert stress(0.0).absent == {"products of float32": "no such kernel"}


@pytest.mark.parametrize("device", ["", "3", "NPU:1", "CPU:x", "Ascend:-1", "CPU:0\n", "Ascend:3"])
def test_a_device_that_is_none_is_told(device):
    with pytest.raises(ConfigError, match="--device has the value"):
        use_device(device, "graph")


def test_the_vendors_own_test_says_why_it_does_not_run_on_a_cpu():
    with pytest.raises(UnsupportedError, match="stress test does not run: Stress"):
        stress_test()
