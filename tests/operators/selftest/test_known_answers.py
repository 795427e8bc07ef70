"""The test of a device by known answers: right on a sound device, and every kind of wrong one found, in both modes."""

import math
import re

import numpy as np
import pytest

from asd.errors import ConfigError, UnsupportedError
from asd.operators.rerun.pieces import PIECES
from asd.operators.rerun.vendor import stress_test
from asd.operators.selftest.known_answers import stress, use_device

SUMS = PIECES["sums"]


@pytest.fixture
def cpu(clean):
    """The CPU as the device under test."""
    assert use_device("CPU", "pynative") == "CPU:0"


def spoil(monkeypatch, kind, name, spoiled, only=None):
    """Each result of a piece of work is `spoiled`, of which others are left out; or its result number `only`."""
    (work,) = (each for each in PIECES[kind] if each.name == name)
    calls = []

    def compute(*operands):
        calls.append(name)
        found = work.compute(*operands)
        return spoiled(found) if only in (None, len(calls)) else found

    for each in list(PIECES):
        monkeypatch.setitem(PIECES, each, ())
    monkeypatch.setitem(PIECES, kind, (work._replace(compute=compute),))


def test_a_sound_device_makes_no_mistake_and_computes_everything_at_least_twice_with_two_sets_of_numbers(mode):
    assert use_device("CPU", mode) == "CPU:0"
    told = []
    outcome = stress(0.0, tell=lambda seconds, count: told.append((seconds, count)))
    assert (outcome.finding, outcome.vendor_code, outcome.absent) == (None, None, {})
    assert outcome.repetitions == {kind: 4 * len(works) for kind, works in PIECES.items()}
    assert [count for _, count in told] == list(range(1, sum(outcome.repetitions.values()) + 1))
    assert all(math.isfinite(seconds) and seconds == 0.0 for seconds, _ in told)


@pytest.mark.parametrize(
    ("name", "factor", "only", "found"),
    [
        ("MatMul of integers", 1 + 2**-23, 4, (1, "the known answer")),
        ("MatMul of integers", math.nan, 4, (1, "the known answer")),
        # one unit in the last place is within what rounding may do, but not what came out the first time
        ("MatMul", 1 + 2**-23, 5, (2, "the first repetition")),
        ("MatMul", 0.0, 6, (2, "the known answer")),
    ],
)
def test_a_wrong_result_is_found_in_the_repetition_it_happens(monkeypatch, cpu, name, factor, only, found):
    spoil(monkeypatch, "products", name, lambda tensor: tensor * factor, only)
    finding = stress(0.0).finding
    assert (finding.workload, finding.output, finding.repetition) == ("products", name, found[0])
    assert finding.words.endswith(f"{finding.wrong} of 262144 elements differ from {found[1]}")
    assert finding.wrong > 100_000


def test_a_finding_names_the_element_with_the_bits_it_should_have_and_those_it_has(monkeypatch, cpu):
    spoil(monkeypatch, "products", "MatMul of integers", lambda tensor: tensor * 2)
    finding = stress(0.0, seed=5).finding
    pattern = r"products, MatMul of integers, seed 5, repetition 1, element \[0, \d+\]: expected (\S+) \(0x(\w{8})\), "
    expected, its_bits, got, bits = re.match(pattern + r"got (\S+) \(0x(\w{8})\); ", finding.sentence()).groups()
    assert float(got) == 2 * float(expected)
    for number, digits in ((expected, its_bits), (got, bits)):
        assert int(digits, 16) == int(np.float32(number).view(np.uint32))


def test_what_a_device_can_not_compute_is_left_out_and_told_and_nothing_at_all_is_no_test(monkeypatch, cpu):
    def refuse(tensor):
        raise RuntimeError("no such kernel. And more")

    spoil(monkeypatch, "products", "MatMul", refuse)
    with pytest.raises(UnsupportedError, match=r"the device can't do the work: no such kernel\.$"):
        stress(0.0)
    monkeypatch.setitem(PIECES, "sums", SUMS)
    assert stress(0.0).absent == {"MatMul": "no such kernel"}


@pytest.mark.parametrize("device", ["", "3", "NPU:1", "CPU:x", "Ascend:-1", "CPU:0\n"])
def test_a_device_that_is_none_is_told(device):
    with pytest.raises(ConfigError, match="--device has the value"):
        use_device(device, "graph")


def test_a_device_that_this_mindspore_does_not_know_is_told():
    with pytest.raises(ConfigError, match="MindSpore has none here .Unsupported device target Ascend"):
        use_device("Ascend:3", "graph")


def test_the_vendors_own_test_says_why_it_does_not_run_on_a_cpu():
    with pytest.raises(UnsupportedError, match="MindSpore's own stress test does not run: Stress detection is not sup"):
        stress_test()
