"""Where the loss scale in force is read from."""

import mindspore as ms
import pytest
from checked_nets import Decoder, fill, ids, targets
from mindspore import Parameter, Tensor, amp, nn

from asd import Config, ConfigError
from asd.operators import StepMonitor
from asd.operators.sensors.loss_scale import LossScale
from asd.rules.reading import Reading

pytestmark = pytest.mark.usefixtures("clean")


def training_parts():
    net = Decoder()
    return net, nn.SGD(net.trainable_params(), 0.1)


def type_and_value(source):
    """The same in every process, unlike the representation of some objects."""
    return type(source).__name__ if "object at" in repr(source) else repr(source)


@pytest.mark.parametrize(
    ("source", "scale"),
    [
        (None, 1.0),
        (1024, 1024.0),
        (0.5, 0.5),
        (Tensor(256.0, ms.float32), 256.0),
        (Tensor([128.0], ms.float32), 128.0),
        (Parameter(Tensor(64.0, ms.float32), name="scale"), 64.0),
        (amp.StaticLossScaler(32.0), 32.0),
        (amp.DynamicLossScaler(16.0, 2, 10), 16.0),
    ],
    ids=type_and_value,
)
def test_it_is_read_from_numbers_tensors_and_scalers(source, scale):
    assert LossScale(source).read() == scale


def test_a_scale_in_a_parameter_is_read_anew_each_time():
    holder = Parameter(Tensor(64.0, ms.float32), name="scale")
    scale = LossScale(holder)
    holder.set_data(Tensor(32.0, ms.float32))
    assert scale.read() == 32.0


def test_only_a_dynamic_scaler_is_dynamic():
    assert LossScale(amp.DynamicLossScaler(16.0, 2, 10)).dynamic is True
    assert LossScale(amp.StaticLossScaler(16.0)).dynamic is False
    assert LossScale(8.0).dynamic is False
    assert LossScale(Tensor(8.0, ms.float32), dynamic=True).dynamic is True


@pytest.mark.parametrize(
    "source", ["8", [8.0], object(), 0, -2.0, float("nan"), Tensor(0.0, ms.float32)], ids=type_and_value
)
def test_what_holds_no_scale_is_refused_with_what_is_valid(source):
    with pytest.raises(ConfigError, match="^loss_scale .* a number above 0"):
        LossScale(source)


@pytest.mark.parametrize("sens", [1.0, 1024.0])
def test_the_constant_of_a_training_cell_is_found_inside_others_too(sens):
    net, optimizer = training_parts()
    cell = nn.TrainOneStepCell(net, optimizer, sens=sens)
    assert LossScale.of(cell).read() == sens
    assert LossScale.of(nn.SequentialCell([cell])).read() == sens
    assert LossScale.of(cell).dynamic is False


@pytest.mark.parametrize(
    ("manager", "dynamic"),
    [(nn.DynamicLossScaleUpdateCell(2.0**12, 2, 100), True), (nn.FixedLossScaleUpdateCell(2.0**12), False)],
    ids=["dynamic", "fixed"],
)
def test_the_scale_of_a_training_cell_with_a_manager_is_found(manager, dynamic):
    net, optimizer = training_parts()
    found = LossScale.of(nn.TrainOneStepWithLossScaleCell(net, optimizer, manager))
    assert (found.read(), found.dynamic) == (2.0**12, dynamic)


def test_a_scale_tensor_of_a_training_cell_is_found():
    net, optimizer = training_parts()
    cell = nn.TrainOneStepWithLossScaleCell(net, optimizer, Tensor(512.0, ms.float32))
    assert (LossScale.of(cell).read(), LossScale.of(cell).dynamic) == (512.0, False)


def test_a_network_without_a_training_cell_has_the_scale_one():
    assert LossScale.of(Decoder()).read() == 1.0


def test_the_scale_of_a_training_cell_of_mindformers_is_found():
    pytest.importorskip("mindformers")
    from mindformers import MFTrainOneStepCell

    net, optimizer = training_parts()
    cell = MFTrainOneStepCell(net, optimizer, scale_sense=nn.DynamicLossScaleUpdateCell(2.0**10, 2, 100))
    assert (LossScale.of(cell).read(), LossScale.of(cell).dynamic) == (2.0**10, True)


@pytest.mark.parametrize(
    ("inner", "outer", "scale"),
    [
        ([2e7, 1e7, 4e6], [1.0, 2.0, 0.5], 2.0**23),
        ([3e4], [2.0, 4.0], 2.0**13),
        ([2e7, 1e7], [3e6, 9e6], 2.0**24),  # which the program left as they are
        ([2e7], [3e6, 9e6], None),  # two places are too few
        ([2e7, 1.0], [3e6, 9e6], None),  # one place alone is too large, and what it sends on
        ([1.0, 2.0], [1.0, 1e-9], None),
        ([float("inf")], [1.0, 1.0], None),
    ],
)
def test_a_scale_that_nobody_told_is_found_where_all_places_show_it(inner, outer, scale):
    readings = [Reading("a", value) for value in inner] + [Reading("b", value, kind="W") for value in outer]
    found = LossScale.found_in(readings, (1e6, 1e4))
    assert (found.read() if found else None) == scale


@pytest.mark.parametrize(("watched", "by_optimizer"), [(True, False), (False, False), (True, True)])
def test_a_scaled_loss_in_a_loop_of_ones_own_ends_no_training(watched, by_optimizer, tmp_path):
    scale, events = 2.0**24, []
    net = fill(Decoder())
    optimizer = nn.Momentum(net.trainable_params(), 1e-3, 0.9, loss_scale=scale if by_optimizer else 1.0)
    monitor = StepMonitor(Config(enable=1, run_dir=str(tmp_path)), sinks=[events.append])
    monitor.attach(net, optimizer)
    gradients = ms.value_and_grad(lambda x, y: net(x, y) * scale, None, optimizer.parameters)

    def step(x, y):
        loss, found = gradients(x, y)
        optimizer(found if by_optimizer else tuple(each / scale for each in found))
        return loss

    step = monitor.watch_step(step) if watched else step
    for number in range(5):
        monitor.step(step(ids(number), targets(number)))
    assert [(event.cause, event.step) for event in events] == ([] if by_optimizer else [("loss_scale", 1)])
    assert monitor.monitor.status.refused == (not watched and not by_optimizer)
