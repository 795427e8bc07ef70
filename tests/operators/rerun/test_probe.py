"""Known-answer tests between steps: a sound device is never blamed, one that is wrong is named with the place."""

import itertools
import math
from types import SimpleNamespace

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, batch, document, fill, values
from mindspore import Tensor, nn, ops

from asd import AnomalyDetected, Level
from asd.operators import StepMonitor
from asd.operators.rerun import probe, work
from asd.operators.rerun.pieces import PIECES, blocks
from asd.operators.rerun.probe import EVERY
from asd.operators.rerun.work import DeviceUnderTest, Sizes

TESTS = [test for tests in PIECES.values() for test in tests]
SIZES = Sizes(9, 32, 64, 3)
ROUND = 60


@pytest.fixture(autouse=True)
def time_enough(monkeypatch):
    """Turns take whatever time they need."""
    monkeypatch.setattr(probe, "SHARE", math.inf)


class Training:
    """A small network that Adam trains."""

    def __init__(self, tmp_path, on_anomaly="log", detectors=("state",)):
        self.net = fill(nn.SequentialCell(nn.Dense(8, 16), nn.LayerNorm((16,))))
        optimizer = nn.Adam(self.net.trainable_params(), 1e-3)
        config = document(rule="adaptive", on_anomaly=on_anomaly, detectors=detectors, run_dir=str(tmp_path))
        self.monitor = StepMonitor(config, sinks=[])
        self.monitor.attach(self.net, optimizer)
        self._step = nn.TrainOneStepCell(self.net, optimizer)
        self.steps = 0

    def step(self):
        loss = self._step(batch(self.steps))
        self.steps += 1
        return [event for event in self.monitor.step(loss) if event.level is Level.ERROR]


def changed(found, at, how):
    """The result, of which the element `at` is changed."""
    array = (found if found.dtype != ms.bfloat16 else found.float()).asnumpy().copy()
    array[at] = how(array[at])
    return Tensor(array).astype(found.dtype)


def spoil(monkeypatch, name, spoiled, only=None):
    """Every result of this test is `spoiled`; or its result number `only`."""
    calls = []

    def wrong(test):
        def compute(*operands):
            calls.append(test.name)
            found = test.compute(*operands)
            return spoiled(found) if only in (None, len(calls)) else found

        return test._replace(compute=compute)

    for kind, tests in PIECES.items():
        monkeypatch.setitem(PIECES, kind, [wrong(test) if test.name == name else test for test in tests])


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.name)
def test_a_sound_device_passes_whatever_the_turn_and_one_element_that_is_wrong_is_found_where_it_is(test, clean):
    device = DeviceUnderTest(SIZES, blocks())
    assert [device.test([test], turn) for turn in range(9)] == [[]] * 9
    if device.absent:
        assert set(device.absent) == {"products of bfloat16"}  # the CPU has none
        return
    at = tuple(length - 1 for length in test.answer(device, 0).found.shape)

    def compute(*operands):
        return changed(test.compute(*operands), at, lambda number: 3 * abs(number) + 3)

    (finding,) = device.test([test._replace(compute=compute)], 1)
    assert finding.wrong == 1
    (again,) = device.test([test._replace(compute=compute)], 2)
    assert again.words.endswith("; 1 of these elements were wrong before")


@pytest.mark.parametrize("most", [math.inf, 65504.0], ids=["overflows", "saturates"])
def test_a_device_that_computes_float32_in_float16_is_tested_by_what_remains_and_not_accused(most, monkeypatch, clean):
    product, half = work.P.MatMul(), lambda a: ops.clamp(a, -most, most).half()
    monkeypatch.setattr(work.P, "MatMul", lambda: lambda a, b: product(half(a), half(b)).float())
    device = DeviceUnderTest(SIZES, blocks())
    assert device.test(TESTS, 0) == []
    lacking = {test.name for test in TESTS if device.lacks(test) and "bfloat16" not in test.name}
    assert lacking == {test.name for test in TESTS if test.name.endswith(", float32") or test.name.startswith("Conv2D")}


def test_a_device_whose_products_are_zero_does_not_compute_in_half_precision(monkeypatch, clean):
    product = work.P.MatMul()
    monkeypatch.setattr(work.P, "MatMul", lambda: lambda a, b: product(a, b) * 0)
    assert not work.computes_in_half()


@pytest.mark.parametrize(("kind", "least"), [("float32", 2**-23), ("float16", 2**-10)])
def test_products_of_integers_show_the_last_bit_and_each_order_of_summation_is_right(kind, least, clean):
    random = np.random.default_rng(1)

    def random_sums(a, b):
        """Sums the terms in an order of its own each time, partial sums in the type of the operands."""
        left, right = a.asnumpy(), b.asnumpy()
        sums = np.zeros((len(left), right.shape[1]), left.dtype)
        for k in random.permutation(left.shape[1]):
            sums = sums + np.outer(left[:, k], right[k])
        return Tensor(sums)

    device = DeviceUnderTest(SIZES, blocks())
    (test,) = (each for each in PIECES["products"] if each.name == f"MatMul, {kind}")
    assert [device.test([test._replace(compute=random_sums)], turn) for turn in range(9)] == [[]] * 9

    def compute(*operands):
        return changed(test.compute(*operands), (4, 5), lambda number: number * (1 + least))

    assert [each.wrong for each in device.test([test._replace(compute=compute)], 1)] == [1]


@pytest.mark.parametrize("operator", ["_EQUAL", "_WITHIN", "_SUM", "_STACK"])
@pytest.mark.parametrize("value", [0, 1])
def test_a_device_that_can_not_compare_or_count_fails(monkeypatch, clean, operator, value):
    bare = getattr(work, operator)
    monkeypatch.setattr(work, operator, lambda *given: (bare(*given) * 0 + value).astype(bare(*given).dtype))
    tests = [each for each in TESTS if each.name in {"Add", "Exp", "MatMul, float32"}]
    assert DeviceUnderTest(SIZES, blocks()).test(tests, 1)


@pytest.mark.parametrize(
    ("shapes", "sizes"),
    [([(1, 16)], (123, 191, 64, 2)), ([(4096, 1376)] * 150 + [(4000, 4096)], (2043, 4096, 1024, 128))],
)
def test_sizes_follow_the_weights_of_the_training_within_bounds(shapes, sizes):
    assert Sizes.of(shapes) == sizes


def test_a_sound_device_passes_and_losses_are_those_without(mode, tmp_path):
    ours, plain = Training(tmp_path), Training(tmp_path, detectors=())
    for _ in range(ROUND):
        assert ours.step() == plain.step() == []
    assert_same_bits(values(ours.net.get_parameters()), values(plain.net.get_parameters()))
    told, device = ours.monitor.monitor.protections, ours.monitor._training._probe._device
    assert [each.split(": ")[:2] for each in told.missing["probe"]] == [["not computed here", "products of bfloat16"]]
    due = {test.name for kind, tests in PIECES.items() if kind != "convolutions" for test in tests}
    assert {name for name in due - device._tried if "bfloat16" not in name} == set()
    assert "weight comparison" in told.off


@pytest.mark.parametrize(
    ("seconds", "turns", "names"),
    [(1000, {step: 4 for step in range(3, 49, 3)}, 57), (0, {3: 4, 6: 2, 12: 2, 24: 2, 48: 2}, 4)],
)
def test_turns_are_rare_and_load_no_operator_while_they_take_long(monkeypatch, tmp_path, clean, seconds, turns, names):
    training, clock = Training(tmp_path), itertools.count()
    known = training.monitor._training._probe
    now = SimpleNamespace(perf_counter=lambda: next(clock) + seconds * training.steps)
    monkeypatch.setattr(probe, "time", now)
    monkeypatch.setattr(probe, "SHARE", 0.02)
    known._ended = 0
    run = [known._runs.total() for _ in range(49) if training.step() == []]
    assert {step: more - less for step, (less, more) in enumerate(itertools.pairwise(run), 2) if more > less} == turns
    assert len(known._runs) == names


def test_an_operator_that_is_always_wrong_is_found_within_60_steps_and_ends_the_training(monkeypatch, tmp_path, clean):
    spoil(monkeypatch, "UnsortedSegmentSum", lambda found: changed(found, (slice(3, 5), 7), lambda _: 0))
    training = Training(tmp_path, on_anomaly="stop")
    with pytest.raises(AnomalyDetected) as ended:
        [training.step() for _ in range(ROUND)]
    event = ended.value.event
    assert (event.rule, event.checkpoint, event.level.name) == ("probe", "probe.UnsortedSegmentSum", "ERROR")
    assert "in rows 3 to 4, columns 7 to 7: [3, 7] is 0.0 (0x00000000), must be " in event.reason


def test_a_failure_of_the_probe_is_a_problem_and_an_anomaly_of_its_step_ends_the_training(monkeypatch, tmp_path, clean):

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(probe.DeviceUnderTest, "test", fail)
    training = Training(tmp_path, on_anomaly="stop")
    [training.step() for _ in range(2 * EVERY - 1)]
    assert training.monitor.monitor.status.problems == 1
    training.net[0].weight.set_data(training.net[0].weight * np.inf)
    with pytest.raises(AnomalyDetected):
        training.step()
