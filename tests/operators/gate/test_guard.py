"""A guarded optimizer applies every good update bit for bit and nothing of a bad one."""

import gc
import math

import mindspore as ms
import numpy as np
import pytest
from checked_nets import STYLES, Decoder, assert_same_bits, fill, ids, readings, state_of, targets
from mindspore import Parameter, Tensor, nn, ops

from asd import Config, ConfigError, Level
from asd.operators import StepMonitor, guard, install
from asd.operators.gate import slots
from asd.operators.gate.guard_state import GuardState
from asd.operators.gate.tap import make_tap, note
from tests.support.tables import quick

pytestmark = pytest.mark.usefixtures("clean")


def mindformers_adamw(weights):
    return pytest.importorskip("mindformers.core.optim").AdamW(weights, learning_rate=1e-2)


OPTIMIZERS = {
    "Adam": lambda weights: nn.Adam(weights, nn.ExponentialDecayLR(1e-2, 0.9, 2)),  # it counts its updates
    "SGD": lambda weights: nn.SGD(weights, 1e-2, momentum=0.9),
    "mindformers AdamW": mindformers_adamw,  # it does not compile itself
}


def limits(limit=math.inf, scale=1.0):
    """Sets one limit for all sites and arms the gate."""
    table = slots.table()
    readings()
    table.set_limits([(site, limit) for site in table.sites()], scale)
    table.arm(True)


class Training:
    def __init__(self, make_optimizer, style, *, guarded=True):
        self.net = fill(Decoder())
        self.optimizer = make_optimizer(self.net.trainable_params())
        if guarded:
            install(self.net)
            assert guard(self.optimizer) is self.optimizer
        self._step = STYLES[style](self.net, self.optimizer)

    def step(self, seed, factor=1.0):
        self._step(ids(seed), targets(seed) * factor).asnumpy()
        return readings()

    def state(self):
        return state_of(self.net, self.optimizer)


def test_a_gradient_that_is_none_leaves_the_others_measured():
    sites = [slots.table().new_site(name, "W") for name in ("a", "b")]
    assert note(sites, [None, Tensor([3.0, 4.0], ms.float32)]).asnumpy().tolist() == [5.0]


def style_of(mode):
    return {"graph": "one step cell", "pynative": "value_and_grad"}[mode]


@pytest.mark.parametrize(
    ("name", "mode"),
    quick(3, [("Adam", "graph"), ("Adam", "pynative"), ("SGD", "pynative"), ("mindformers AdamW", "pynative")]),
    indirect=["mode"],
)
def test_a_refused_step_of_any_optimizer_changes_nothing_and_the_next_one_is_applied(name, mode):
    ours = Training(OPTIMIZERS[name], style_of(mode))
    theirs = Training(OPTIMIZERS[name], style_of(mode), guarded=False)
    limits(limit=1e3)
    refused = slots.table().refused()
    for seed in (1, 2):
        ours.step(seed)
        theirs.step(seed)
    assert_same_bits(ours.state(), theirs.state())
    found = ours.step(3, 1e6)
    assert max(reading.value for reading in found.values()) > 1e3
    assert slots.table().refused() == refused + 1
    assert_same_bits(ours.state(), theirs.state())
    before = ours.state()
    for seed in (4, 5):
        ours.step(seed)
        theirs.step(seed)
    assert_same_bits(ours.state(), theirs.state())
    assert any(before[key].tobytes() != value.tobytes() for key, value in ours.state().items())
    assert slots.table().refused() == refused + 1


@pytest.mark.parametrize("style", quick(2, [style for style in STYLES if style != "value_and_grad"]))
def test_every_style_of_a_pynative_training_refuses(style, ahead):
    training = Training(OPTIMIZERS["Adam"], style)
    limits(limit=1e3)
    training.step(1)
    before = training.state()
    training.step(2, 1e6)
    assert_same_bits(training.state(), before)
    training.step(3)
    assert training.state()["embedding.embedding_table"].tobytes() != before["embedding.embedding_table"].tobytes()


@pytest.mark.parametrize(
    ("name", "mode", "jit"),
    quick(2, [("SGD", "graph", ""), ("Adam", "pynative", "0"), ("mindformers AdamW", "pynative", "")]),
    indirect=["mode"],
)
def test_an_update_is_judged_once_and_its_gradients_are_read_once(name, mode, jit, monkeypatch):
    monkeypatch.setenv("MS_JIT", jit)
    net = fill(Decoder())
    optimizer = guard(OPTIMIZERS[name](net.trainable_params()), gradients=True)
    step = STYLES[style_of(mode)](net, optimizer)
    gate = optimizer.asd_gate.gate
    for seed in (1, 2):
        step(ids(seed), targets(seed)).asnumpy()
        assert slots.table().updates(gate) == 1
        found = slots.table().read(optimizer.asd_gate.sites, gate)
        assert len(found) == len(net.trainable_params())


class Tapped(nn.Cell):
    def __init__(self, name):
        super().__init__()
        self.tap = make_tap(slots.table().new_site(name))

    def construct(self, x):
        return ops.square(self.tap(x)) / 2


class Bench:
    """A site that is shown chosen gradients, and a guarded optimizer that is called by hand."""

    def __init__(self, parameters=1, name="bench"):
        self.net = Tapped(name)
        self.site = self.net.tap.site
        self.grad = ms.grad(self.net)
        self.weights = [Parameter(np.zeros(2, np.float32), name=f"w{i}") for i in range(parameters)]
        self.optimizer = guard(nn.SGD(ms.ParameterTuple(self.weights), 1.0))

    def refuses(self, *gradient):
        self.grad(Tensor(np.array(gradient, np.float32))).asnumpy()
        before = self.weights[-1].asnumpy().copy()
        self.optimizer(tuple(Tensor(np.ones(2, np.float32)) for _ in self.weights))
        after = [weight.asnumpy() - before for weight in self.weights]
        assert all(np.array_equal(step, after[0]) for step in after)
        assert after[0].tolist() in ([0.0, 0.0], [-1.0, -1.0])
        return after[0].tolist() == [0.0, 0.0]


def test_a_value_at_the_limit_passes_and_the_next_larger_one_is_refused_for_all_gradients(mode):
    bench = Bench(parameters=300)
    gradient = [0.3, -0.7, 0.1]
    bench.grad(Tensor(np.array(gradient, np.float32))).asnumpy()
    reading = readings()["bench"]
    for scale in (1.0, 1024.0, 3.0):
        value = reading.value / scale
        for limit, refused in [(value, False), (np.nextafter(value, 0), True), (math.inf, False), (0.0, True)]:
            limits(float(limit), scale)
            assert bench.refuses(*gradient) is refused, (scale, limit)
        limits()


def test_guarding_twice_changes_nothing_more():
    net = fill(Decoder())
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    names = [parameter.name for parameter in optimizer.get_parameters()]
    kind = type(guard(optimizer))
    assert (type(guard(optimizer)), kind.__name__, kind.__base__) == (kind, "Adam", nn.Adam)
    assert [parameter.name for parameter in optimizer.get_parameters()] == names


def test_one_graph_may_update_by_several_guarded_optimizers(graph):
    weights = [Parameter(np.ones(2, np.float32), name=name) for name in ("one", "other")]
    cell = nn.Cell()  # which tells its parts apart by their names
    cell.first, cell.second = (guard(nn.SGD([weight], 0.5)) for weight in weights)

    @ms.jit
    def step(gradient):
        return cell.first((gradient,)), cell.second((gradient,))

    step(Tensor(np.ones(2, np.float32)))
    assert [weight.asnumpy().tolist() for weight in weights] == [[0.5, 0.5]] * 2


def test_a_tap_returns_another_tensor_on_the_memory_of_its_input():
    x = Tensor(np.full((3, 4), 2.0, np.float32)) * 1
    tap = make_tap(slots.table().new_site("tap"))
    output = tap.look.construct(x, *tap.slots())
    assert output is not x
    assert output.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("value", [None, "Adam", 3, object()])
def test_what_is_no_cell_is_refused_by_its_type(value):
    with pytest.raises(ConfigError, match=rf"^optimizer has the value '{type(value).__name__}', .*\.$"):
        guard(value)


@pytest.mark.parametrize("rule", quick(1, ["adaptive", "threshold"]))
def test_the_gate_refuses_exactly_the_steps_that_the_host_calls_first_level(rule, graph):
    """A seeded stream that crosses the limit up and down; the gate sees it before the host does."""
    bench = Bench()
    config = Config(protection="document", enable=1, on_anomaly="skip", rule=rule, upper=(20, 10), sigma=(6, 4))
    monitor = StepMonitor(config, sinks=[])
    monitor.attach(bench.net, bench.optimizer)
    generator = np.random.default_rng(7)
    stream = np.exp2(generator.normal(0, 0.3, 160))
    stream[[120, 131, 140]] *= 8
    stream[[125, 145]] = [1e5, np.inf]
    stream[150] *= 21
    both = []
    for value in stream:
        refused = bench.refuses(value, -value / 2)
        events = monitor.step()
        fatal = any(event.level is Level.ERROR for event in events)
        both.append((refused, fatal))
    assert {pair for pair in both if pair[0] != pair[1]} == set()
    assert sum(refused for refused, _ in both) >= 3


def test_what_nobody_judges_refuses_nothing(mode):
    """Values in the slots of another network, trained by nobody or gone, must not stop this one."""
    other, gone = Tapped("other"), Tapped("gone")
    for net in (other, gone):
        ms.grad(net)(Tensor(np.array([np.inf], np.float32))).asnumpy()
    del gone, net
    bench = Bench()
    monitor = StepMonitor(Config(protection="document", enable=1, on_anomaly="skip"), sinks=[], include="^$")
    (elsewhere := slots.table().new_gate()).serve(bench)
    elsewhere.take(other.tap.site)
    monitor.attach(bench.net, bench.optimizer)
    for _ in range(2):
        assert not bench.refuses(1.0)
        assert monitor.step() == []
    assert bench.refuses(math.nan)


def test_a_guard_may_be_collected_while_those_of_all_trainings_are_weighed(monkeypatch):
    benches, judge = [Bench(name=f"training {i}") for i in range(4)], GuardState.judge

    def collect(*args):
        del benches[1:2]
        gc.collect()
        judge(*args)

    monkeypatch.setattr(GuardState, "judge", collect)
    limits(limit=2.0)
    assert benches[0].refuses(5.0)


def test_a_slot_given_to_another_network_starts_empty_and_without_a_limit():
    site = slots.table().new_site("first")
    kept = [slots.table().new_site("kept"), *slots.table().sites()]
    slot = site.slot
    limits(limit=2.0)
    net = Tapped("second")
    net.tap = make_tap(site)
    ms.grad(net)(Tensor(np.array([np.inf], np.float32))).asnumpy()
    kept.remove(site)
    del net, site
    gc.collect()
    bench = Bench(name="third")
    assert bench.site.slot <= slot
    assert readings() == {}
    assert not bench.refuses(1e9)


def test_values_that_nobody_asks_for_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(slots.table(), "CAPACITY", 4)
    net = Tapped("forgotten")
    gradient = ms.grad(net)
    for size in (1.0, 5.0, *[2.0] * 8):
        gradient(Tensor(np.array([size], np.float32))).asnumpy()
    assert len(slots.table()._noted) < 4
    assert readings()["forgotten"].value == 5.0


class Divided(Tensor):
    """A gradient of which this rank holds a part, with the habits of a DTensor of hyper-parallel."""

    def __init__(self, whole, part):
        super().__init__(whole)
        self.part = Tensor(part)

    def to_local(self):
        return self.part

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def view(self, *args):
        raise NotImplementedError("only a local part has a view")


def test_of_gradients_that_are_divided_over_ranks_a_rank_judges_its_own_part():
    weight = Parameter(Tensor(np.ones(4, np.float32)), name="weight")
    optimizer = guard(nn.SGD([weight], 0.5), gradients=True)
    limits(limit=10)
    optimizer((Divided(np.full(4, 1e6, np.float32), np.full(2, 1, np.float32)),))
    assert weight.asnumpy().tolist() == [1 - 0.5e6] * 4
    refused = slots.table().refused()
    optimizer((Divided(np.ones(4, np.float32), np.full(2, 1e6, np.float32)),))
    assert weight.asnumpy().tolist() == [1 - 0.5e6] * 4
    assert slots.table().refused() == refused + 1
