"""Known work between steps: a sound device is never blamed, one that is wrong is named with what it was given."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import assert_same_bits, batch, document, fill, values
from mindspore import nn, ops

from asd import AnomalyDetected, Level
from asd.operators import StepMonitor
from asd.operators.rerun import probe
from asd.operators.rerun.pieces import PIECES
from asd.operators.rerun.probe import EVERY
from asd.operators.rerun.work import operands_of

WORKS = [work for works in PIECES.values() for work in works]
ROUND = EVERY * -(-len(WORKS) // 16)


@pytest.fixture
def large(monkeypatch):
    """A network counts as large: as many pieces are due in each turn as ever."""
    monkeypatch.setattr(probe, "_ELEMENTS", 1)


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


def spoil(monkeypatch, name, spoiled, only=None):
    """Every result of this work is `spoiled`; or its result number `only`."""
    calls = []

    def wrong(work):
        def compute(*operands):
            calls.append(work.name)
            found = work.compute(*operands)
            return spoiled(found) if only in (None, len(calls)) else found

        return work._replace(compute=compute)

    for piece, works in PIECES.items():
        changed = [wrong(work) if work.name == name else work for work in works]
        monkeypatch.setitem(PIECES, piece, changed)


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_an_answer_is_right_for_weights_of_any_size_and_one_zero_in_it_is_wrong(work, clean):
    random = np.random.default_rng(1)
    for turn, scale in enumerate((1e-3, 0.05, 30)):
        given = operands_of(random.normal(0, scale, 999).astype(np.float32), turn)
        operands = [given[each] for each in work.operands]
        found = work.compute(*map(ms.Tensor, operands)).asnumpy()
        assert work._replace(places=work.places / 4).fault(found, found, operands) == ""
        largest = np.unravel_index(np.argmax(np.abs(found)), found.shape)
        found[largest] = 0  # of bounds that are relative to the sum of all terms the largest shows it
        assert work.fault(found, found, operands) == f"1 of {found.size} elements are not what float64 says"


def test_a_sound_device_passes_and_losses_are_those_without(mode, tmp_path, large):
    ours, plain = Training(tmp_path), Training(tmp_path, detectors=())
    for _ in range(ROUND):
        assert ours.step() == plain.step() == []
    assert_same_bits(values(ours.net.get_parameters()), values(plain.net.get_parameters()))
    told = ours.monitor.monitor.protections
    assert told.on["probe"] == f"16 of {len(WORKS)} pieces of known work every {EVERY} steps, each made twice"
    assert "probe" not in told.missing
    assert told.on["weight comparison"] == "none, 0 % of memory between updates"
    assert set(ours.monitor._training._probe._known) == {work.name for work in WORKS}


def test_a_common_operator_that_is_always_wrong_is_found_within_24_steps_and_ends_the_training(
    monkeypatch, tmp_path, clean
):
    spoil(monkeypatch, "Exp", lambda found: found * (ops.arange(found.shape[1]) > 0))
    training = Training(tmp_path, on_anomaly="stop")
    with pytest.raises(AnomalyDetected) as ended:
        [training.step() for _ in range(8 * EVERY)]
    event = ended.value.event
    assert (event.rule, event.checkpoint, event.level.name) == ("probe", "probe.Exp", "ERROR")
    assert "Exp: 32 of 2048 elements are not what float64 says" in event.reason
    with np.load(next(tmp_path.glob("probe-rank0-step*.npz"))) as kept:
        assert np.count_nonzero(kept["Exp, 1"].reshape(32, 64)[:, 0]) == 0
        assert kept["s"].shape == (32, 64)


def test_one_that_is_wrong_once_differs_from_its_second_time(monkeypatch, tmp_path, clean, large):
    spoil(monkeypatch, "Mul", lambda found: found * 1.0000001, only=3)
    training = Training(tmp_path)
    found = [event for _ in range(ROUND) for event in training.step()]
    assert [event.checkpoint for event in found] == ["probe.Mul"]
    assert "elements differ between two times" in found[0].reason


@pytest.mark.parametrize(
    ("factor", "sentence"),
    [
        (None, "Softmax is not computed here: RuntimeError('no such kernel')"),
        (1.01, "Softmax is computed less precisely here, and not tested"),
    ],
)
def test_what_a_device_can_not_compute_or_not_so_well_is_left_out_and_told(
    monkeypatch, tmp_path, clean, large, factor, sentence
):

    def spoiled(found):
        if factor is None:
            raise RuntimeError("no such kernel")
        return found * factor

    spoil(monkeypatch, "Softmax", spoiled)
    training = Training(tmp_path)
    assert [event for _ in range(ROUND) for event in training.step()] == []
    assert training.monitor.monitor.protections.missing["probe"] == [sentence]


def test_a_failure_of_the_probe_is_a_problem_and_an_anomaly_of_its_step_ends_the_training_all_the_same(
    monkeypatch, tmp_path, clean
):

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(probe, "operands_of", fail)
    training = Training(tmp_path, on_anomaly="stop")
    [training.step() for _ in range(2 * EVERY - 1)]
    assert training.monitor.monitor.status.problems == 1
    training.net[0].weight.set_data(training.net[0].weight * np.inf)
    with pytest.raises(AnomalyDetected):
        training.step()
