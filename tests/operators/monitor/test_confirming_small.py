"""A second look at values that are far too small: what a device did once is healed bit for bit."""

import functools

import mindspore as ms
import numpy as np
import pytest
from checked_nets import SLOW, assert_same_bits, batch, fill, values
from mindspore import Tensor, nn, ops

from asd import Config
from asd.injection import Fault
from asd.operators import StepMonitor, guard
from asd.operators.drill.inject import FaultInjector
from asd.operators.gate import slots
from asd.operators.gate.site import largest_raw, smallest_raw
from asd.operators.gate.tap import make_tap

pytestmark = pytest.mark.usefixtures("clean")
STEPS, BAD = 28, 26
SCALE = 1024.0


class Plain(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Dense(8, 8), nn.LayerNorm((8,))
        self.second, self.third = nn.Dense(8, 8), nn.Dense(8, 3)

    def construct(self, x):
        return self.third(self.second(self.norm(self.first(x))))


class Training:
    """A loop of one's own on the same few batches; `strike` changes the gradient of the first weight in one step."""

    def __init__(self, fault=None, *, confirm=0.01, strike=None, factor=1.0):
        net = fill(Plain())
        optimizer = nn.SGD(net.trainable_params(), 1e-4)
        self.events, self.losses, strikes = [], [], []
        config = Config(protection="document", enable=1, on_anomaly="skip", rule="adaptive", confirm=confirm)
        self.monitor = StepMonitor(config, sinks=[self.events.append], replay=False, loss_scale=SCALE)
        self.monitor.attach(net, optimizer)

        def forward(x):
            return ops.reduce_mean(net(x) ** 2) * SCALE

        differentiate = ops.value_and_grad(forward, None, net.trainable_params())

        def clipped(*grads):
            return ops.clip_by_global_norm(grads)

        graph = ms.get_context("mode") == ms.GRAPH_MODE
        gradients, clip = (ms.jit(each) if graph else each for each in (differentiate, clipped))

        def run(x):
            loss, grads = gradients(x)
            grads = [each / SCALE for each in grads]
            if strikes:
                grads[0] = strikes.pop()(grads[0])
            optimizer(tuple(grads if strike is None else clip(*grads)))
            return loss

        step = self.monitor.watch_step(run)
        injector = FaultInjector(Fault.parse(fault or "gradient:norm:scale=1:step=1"))
        injector.attach(net)
        for i in range(1, STEPS + 1):
            injector.begin_step()
            if i == BAD and strike is not None:
                strikes.append(strike)
            loss = step(batch(i % 3) * (factor if i == BAD else 1.0))
            self.monitor.step(loss)
            self.losses.append(loss.asnumpy().tobytes())
        self.state = values([*net.get_parameters(), *optimizer.get_parameters()])

    def told(self):
        return {(event.step, event.kind, event.level.name, event.verdict) for event in self.events}


@functools.cache
def healthy(where, strike=None):
    """Losses and state of the training in which nothing happens, once for each mode."""
    training = Training(strike=strike)
    assert training.events == []
    return training.losses, training.state


def nothing(gradient):
    return gradient


HEALED = {(BAD, "anomaly", "ERROR", ""), (BAD, "replay", "ERROR", "transient")}


def enormous(amount):
    """Strikes one element, behind which clipping hides all others."""

    def strike(gradient):
        faulty = gradient.asnumpy().copy()
        faulty.flat[0] = amount
        return Tensor(faulty)

    return strike


@pytest.mark.parametrize(
    ("mode", "fault"),
    [
        pytest.param("graph", {"fault": f"gradient:norm:scale=0.0333:step={BAD}:elements=48"}, marks=SLOW),
        ("pynative", {"fault": f"gradient:norm:scale=0:step={BAD}:elements=48"}),
        pytest.param("graph", {"strike": enormous(1e30)}, marks=SLOW),
        ("pynative", {"strike": enormous(1e6)}),
    ],
    indirect=["mode"],
)
def test_what_was_far_too_small_once_is_made_again(mode, fault):
    healed = Training(**fault)
    losses, state = healthy(mode, nothing if "strike" in fault else None)
    assert healed.told() == HEALED
    assert healed.losses == losses
    assert_same_bits(healed.state, state)
    assert all(event.healed for event in healed.events)


def test_what_the_data_made_small_stays_a_warning_and_is_applied():
    looked, plain = Training(factor=0.05), Training(factor=0.05, confirm=0.0)
    assert {line[:3] for line in looked.told()} == {(BAD, "anomaly", "WARNING")} == {line[:3] for line in plain.told()}
    assert looked.losses == plain.losses
    assert_same_bits(looked.state, plain.state)


def test_a_value_at_the_lower_limit_passes_and_the_next_smaller_one_is_refused(mode):
    table = slots.table()
    site = table.new_site("site")
    tap = make_tap(site)

    def half_of_squares(x):
        return ops.square(tap(x)).sum() / 2

    see = ms.grad(half_of_squares)
    weight = ms.Parameter(np.zeros(2, np.float32), name="weight")
    optimizer = guard(nn.SGD(ms.ParameterTuple([weight]), 1.0), lower=True)

    def refuses(array, least, scale):
        table.read([site])
        table.set_limits([(site, np.inf)], scale, [(site, least)])
        table.arm(True)
        if array is not None:
            see(Tensor(np.float32(array))).asnumpy()
        before = weight.asnumpy().copy()
        optimizer((Tensor(np.ones(2, np.float32)),))
        return bool(np.array_equal(weight.asnumpy(), before))

    for scale in (1.0, 3.0, 1024.0):
        see(Tensor(np.float32([0.3, -0.7]))).asnumpy()
        value = table.read([site])[0].value / scale
        assert not refuses([0.3, -0.7], value, scale)
        assert refuses([0.3, -0.7], float(np.nextafter(value, 9)), scale)
        assert not refuses(None, 1.0, scale)  # nothing was checked
        assert refuses([0.0, 0.0], 1e-30, scale)
        assert not refuses([0.0, 0.0], 0.0, scale)


def test_raw_limits_are_the_last_values_that_pass():
    random = np.random.default_rng(5)
    limits = np.concatenate([10.0 ** random.uniform(-44, 38, 500), [1.0, 0.1, 1e-30, 5e-324]])
    scales = random.choice([1.0, 3.0, 1e-3, 65536.0], limits.size)
    largest, smallest = largest_raw(limits, scales), smallest_raw(limits, scales)
    assert {largest.dtype, smallest.dtype} == {np.dtype(np.float32)}
    with np.errstate(over="ignore"):
        assert (largest / scales <= limits).all()
        assert (np.nextafter(largest, np.float32(np.inf)) / scales > limits).all()
        assert (smallest / scales >= limits).all()
        assert (np.nextafter(smallest, np.float32(-np.inf)) / scales < limits).all()
    ends = np.array([-np.inf, 0.0, np.inf])
    assert largest_raw(ends, np.ones(3)).tolist() == [-np.inf, 0.0, np.inf]
    assert smallest_raw(ends[1:], np.ones(2)).tolist() == [0.0, np.inf]
