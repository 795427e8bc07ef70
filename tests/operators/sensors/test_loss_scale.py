"""Where the loss scale in force is read from."""

import contextlib
from functools import partial

import mindspore as ms
import pytest
from checked_nets import Decoder, dataset, fill, ids, targets, train_sunk
from mindspore import Parameter, Tensor, amp, nn, ops

from asd import AnomalyDetected, Config, ConfigError, Level
from asd.operators import StepMonitor
from asd.operators.sensors.loss_scale import LossScale
from asd.rules.reading import Reading

pytestmark = pytest.mark.usefixtures("clean")


SCALED = nn.TrainOneStepWithLossScaleCell


def type_and_value(source):
    """The same in every process, unlike the representation of some objects."""
    return type(source).__name__ if "object at" in repr(source) else repr(source)


@pytest.mark.parametrize(
    ("source", "scale"),
    [
        *((None, 1.0), (1024, 1024.0), (0.5, 0.5)),
        (Tensor(256.0, ms.float32), 256.0),
        (Tensor([128.0], ms.float32), 128.0),
        (Parameter(Tensor(64.0, ms.float32), name="scale"), 64.0),
        (amp.StaticLossScaler(32.0), 32.0),
        (amp.DynamicLossScaler(16.0, 2, 10), 16.0),
    ],
    ids=type_and_value,
)
def test_it_is_read_from_numbers_tensors_and_scalers_and_only_a_dynamic_scaler_is_dynamic(source, scale):
    found = LossScale(source)
    assert (found.read(), found.dynamic) == (scale, isinstance(source, amp.DynamicLossScaler))
    assert LossScale(source, dynamic=True).dynamic


@pytest.mark.parametrize(
    "source", ["8", [8.0], object(), 0, -2.0, float("nan"), Tensor(0.0, ms.float32)], ids=type_and_value
)
def test_what_holds_no_scale_is_refused_with_what_is_valid(source):
    with pytest.raises(ConfigError, match="^loss_scale .* a number above 0"):
        LossScale(source)


class ScaledOnCpu(SCALED):
    """That of MindSpore, which asks an Ascend whether anything overflowed."""

    def get_overflow_status(self, status, compute_output):
        return ops.addn([ops.reduce_sum(1 - ops.cast(ops.isfinite(each), ms.float32)) for each in compute_output]) > 0


def test_steps_that_a_dynamic_scaler_skips_among_several_of_one_call_are_no_anomalies_of_it(graph):
    net = fill(Decoder())
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    cell = ScaledOnCpu(net, optimizer, nn.DynamicLossScaleUpdateCell(2.0**10, 2, 1000)).set_train()
    events = []
    monitor = StepMonitor(Config(enable=1, rule="adaptive", on_anomaly="log"), sinks=[events.append])
    batches = dataset(range(1, 13), bad=[3, 6], factor=1e38)  # the first and the last of a call overflow
    train_sunk(net, optimizer, batches, monitor, steps=2, cell=cell)
    assert [(each.step, each.reason) for each in events] == []
    assert cell.scale_sense.asnumpy() == 2.0**8
    assert monitor.monitor.status.refused == 0


def of_mindformers(net, optimizer):
    make = pytest.importorskip("mindformers").MFTrainOneStepCell
    return make(net, optimizer, scale_sense=nn.DynamicLossScaleUpdateCell(2.0**10, 2, 100))


@pytest.mark.parametrize(
    ("make", "scale", "dynamic"),
    [
        (nn.TrainOneStepCell, 1.0, False),
        (partial(nn.TrainOneStepCell, sens=1024.0), 1024.0, False),
        (partial(nn.TrainOneStepCell, sens=-1.0), 1.0, False),
        (partial(SCALED, scale_sense=nn.DynamicLossScaleUpdateCell(2.0**12, 2, 100)), 2.0**12, True),
        (partial(SCALED, scale_sense=nn.FixedLossScaleUpdateCell(2.0**12)), 2.0**12, False),
        (partial(SCALED, scale_sense=Tensor(2.0**12, ms.float32)), 2.0**12, False),
        (of_mindformers, 2.0**10, True),
    ],
    ids=range(7),
)
def test_the_scale_of_a_training_cell_is_found_inside_others_too(make, scale, dynamic):
    net = Decoder()
    cell = make(net, nn.SGD(net.trainable_params(), 0.1))
    for found in map(LossScale.of, (cell, nn.SequentialCell([cell]))):
        assert (found.read(), found.dynamic) == (scale, dynamic)


@pytest.mark.parametrize(
    ("inner", "outer", "scale"),
    [
        ([2e7, 1e7, 4e6], [1.0, 2.0, 0.5], 2.0**23),
        ([3e4], [2.0, 4.0], 2.0**13),
        ([2e7, 1e7], [3e6, 9e6], 2.0**24),  # which the program left as they are
        ([2e7], [3e6, 9e6], 0.0),  # two places are too few
        ([2e7, 1.0], [3e6, 9e6], 0.0),  # one place alone is too large, and what it sends on
        ([1.0, 2.0], [1.0, 1e-9], 0.0),
        ([float("inf")], [1.0, 1.0], 0.0),
    ],
)
def test_a_scale_that_nobody_told_is_found_where_all_places_show_it(inner, outer, scale):
    readings = [Reading("a", value) for value in inner] + [Reading("b", value, kind="W") for value in outer]
    assert LossScale.shown_by(readings, (1e6, 1e4)) == scale


@pytest.fixture
def trained(tmp_path):
    """Trains for five steps in a loop of one's own; returns the events, and what is trained."""

    def train(scale_in, *, watched, by_optimizer=False, divides=True, monitors=1):
        net, events = fill(Decoder()), []
        rate, known = (1e-3 if divides else 1e-9), (scale_in(1) if by_optimizer else 1.0)
        optimizer = nn.Momentum(net.trainable_params(), rate, 0.9, loss_scale=known)
        scale = Parameter(Tensor(1.0, ms.float32), name="scale", requires_grad=False)
        gradients = ms.value_and_grad(lambda x, y: net(x, y) * scale, None, optimizer.parameters)
        calls = [0]

        def step(x, y):
            calls[0] += 1
            scale.set_data(Tensor(float(scale_in(calls[0])), ms.float32))
            loss, found = gradients(x, y)
            optimizer(tuple(each / scale for each in found) if divides and not by_optimizer else found)
            return loss

        for _ in range(monitors):
            monitor = StepMonitor(Config(enable=1, run_dir=str(tmp_path)), sinks=[events.append])
            monitor.attach(net, optimizer)
            run = monitor.watch_step(step) if watched else step
            with contextlib.suppress(AnomalyDetected):
                for number in range(5):
                    monitor.step(run(ids(number), targets(number)))
        return events, monitor.monitor.status

    return train


@pytest.mark.parametrize(("watched", "lost"), [(True, 0), (False, 2)])
@pytest.mark.parametrize("divides", [True, False])
def test_a_scale_that_a_second_run_or_step_shows_too_is_taken_for_one(watched, lost, divides, trained):
    events, status = trained(lambda _: 2.0**24, watched=watched, divides=divides)
    assert [(event.cause, event.step) for event in events] == [("loss_scale", step) for step in (1, 2)[: lost or 1]]
    assert (status.refused, status.steps) == (lost, 5)


def test_a_scale_that_was_found_is_known_where_the_training_goes_on(trained):
    events, status = trained(lambda _: 2.0**24, watched=True, monitors=2)
    assert [(event.cause, event.step) for event in events] == [("loss_scale", 1)]
    assert (status.refused, status.steps, status.step) == (0, 5, 10)


def test_a_scale_by_which_the_optimizer_divides_is_known(trained):
    events, status = trained(lambda _: 2.0**24, watched=True, by_optimizer=True)
    assert (events, status.refused) == ([], 0)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("size", [2.0**24, 2.0**30, 3e30])
def test_a_device_that_makes_all_values_of_the_first_step_large_is_no_loss_scale(watched, size, trained):
    events, status = trained(lambda call: size if call == 1 else 1.0, watched=watched, divides=False)
    (first, *_) = [event for event in events if event.kind == "anomaly"]
    assert (first.step, first.level, first.harmless, status.refused) == (1, Level.ERROR, True, not watched)
    assert [event.verdict for event in events if event.kind == "replay"] == ["transient"][:watched]
