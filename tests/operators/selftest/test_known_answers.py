"""The stress test: right answers on a sound device, and every kind of wrong one found, in both modes."""

import math

import numpy as np
import pytest
from mindspore import Tensor

from asd.errors import ConfigError, UnsupportedError
from asd.injection import Fault
from asd.operators.selftest.known_answers import stress, use_device, vendor_test
from asd.operators.selftest.workloads import WORKLOADS

NAMES = ["matmul_float32", "matmul_float16", "attention_float32", "reduction_float32"]


@pytest.fixture
def cpu(mode):
    """The CPU as the device under test, in one of the two modes."""
    assert use_device("CPU", mode) == "CPU:0"


def test_a_sound_device_makes_no_mistake_and_computes_everything_at_least_twice_with_two_sets_of_numbers(cpu):
    outcome = stress(0.0)
    assert outcome.finding is None
    assert outcome.vendor_code is None
    assert outcome.repetitions == dict.fromkeys(NAMES, 4)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("output:matmul_float32:flip=0:step=1:seed=3", ("matmul_float32", "forward", 1, 1, "the known answer")),
        ("output:float16:set=nan:step=3:elements=5", ("matmul_float16", "forward", 2, 5, "the known answer")),
        # one unit in the last place is within the bound of attention, but not what came out the first time
        ("output:attention:flip=0:step=3", ("attention_float32", "output", 2, 1, "the first repetition")),
        ("output:attention:scale=1.001:step=1", ("attention_float32", "output", 1, 1, "the known answer")),
        ("output:reduction:flip=31:step=1", ("reduction_float32", "sum_0", 1, 1, "the known answer")),
    ],
)
def test_one_wrong_element_is_found_in_the_repetition_it_happens(cpu, fault, found):
    finding = stress(0.0, fault=Fault.parse(fault)).finding
    assert (finding.workload, finding.output, finding.repetition, finding.wrong, finding.against) == found
    assert finding.expected_bits != finding.got_bits


def test_a_finding_names_the_element_with_the_bits_it_should_have_and_those_it_has(cpu):
    finding = stress(0.0, seed=0, fault=Fault.parse("output:matmul_float32:flip=0:step=1")).finding
    task = WORKLOADS[0].task(0)
    right = task.answers[0][finding.at]
    assert finding.seed == 0
    assert finding.expected == right
    assert int(finding.expected_bits, 16) == int(np.float32(right).view(np.uint32))
    assert int(finding.got_bits, 16) == int(finding.expected_bits, 16) ^ 1
    assert finding.sentence() == (
        f"matmul_float32, output forward, seed 0, repetition 1, element {list(finding.at)}: expected {right!r} "
        f"({finding.expected_bits}), got {finding.got!r} ({finding.got_bits}); 1 of 262144 elements differ from the "
        "known answer"
    )


@pytest.mark.parametrize("workload", WORKLOADS, ids=NAMES)
def test_no_sum_of_its_products_can_leave_the_integers_that_its_type_holds_exactly(workload):
    task = workload.task(0)
    if workload.name.startswith("matmul"):
        x, w, g = (np.abs(each.astype(np.float64)) for each in task.inputs)
        largest = max((x @ w).max(), (g @ w.T).max(), (x.T @ g).max())
        assert largest <= 2.0 ** (11 if workload.name.endswith("16") else 24)
        assert all((each == np.rint(each)).all() for each in task.inputs)
        assert [str(each.dtype) for each in task.inputs] == [workload.name.removeprefix("matmul_")] * 3
    elif workload.name.startswith("reduction"):
        assert (task.inputs[0].astype(np.float64) ** 2).sum() <= 2.0**24


@pytest.mark.parametrize("seed", range(5))
def test_attention_stays_well_within_its_bound(cpu, seed):
    (workload,) = (each for each in WORKLOADS if each.name == "attention_float32")
    task = workload.task(seed)
    output = workload.build()(*map(Tensor, task.inputs))[0].asnumpy()
    share = (np.abs(output - task.answers[0]) / task.bounds[0]).max()
    assert 0.0 < share < 0.25


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("gradient:matmul:flip=1:step=1", "fault target has the value 'gradient', which is not valid: a stress test "),
        ("output:norm:flip=1:step=1", "fault where has the value 'norm', which is not valid: valid is an expression "),
        ("output:float16:flip=20:step=1", "fault flip has the value 20, which is not valid: valid for float16 is 0 "),
    ],
)
def test_a_fault_that_strikes_nothing_is_told(fault, sentence):
    with pytest.raises((ConfigError, UnsupportedError), match=sentence):
        stress(0.0, fault=Fault.parse(fault))


@pytest.mark.parametrize("device", ["", "3", "NPU:1", "CPU:x", "Ascend:-1", "CPU:0\n"])
def test_a_device_that_is_none_is_told(device):
    with pytest.raises(ConfigError, match="--device has the value"):
        use_device(device, "graph")


def test_a_device_that_this_mindspore_does_not_know_is_told():
    with pytest.raises(ConfigError, match="MindSpore has none here .Unsupported device target Ascend"):
        use_device("Ascend:3", "graph")


def test_time_is_told_while_it_passes():
    told = []
    outcome = stress(0.0, tell=lambda seconds, count: told.append((seconds, count)))
    assert [count for _, count in told] == list(range(1, sum(outcome.repetitions.values()) + 1))
    assert all(math.isfinite(seconds) and seconds == 0.0 for seconds, _ in told)


def test_the_vendors_own_test_says_why_it_does_not_run_on_a_cpu():
    with pytest.raises(UnsupportedError, match="MindSpore's own stress test does not run: Stress detection is not sup"):
        vendor_test()
