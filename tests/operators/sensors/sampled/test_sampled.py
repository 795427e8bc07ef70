"""Results of layers computed again now and then in PyNative: what is found, what it changes (nothing), and when."""

import ast
import copy
import gc
import inspect
import re
import sys
import weakref
from functools import cache

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, mint, nn, ops
from mindspore.ops import operations as P  # noqa: N812
from sampled_nets import NETS, WIDTH, Branches, Linear, Perceptron, Run

from asd import Config
from asd.operators import StepMonitor, disable
from asd.operators.gate import slots
from asd.operators.private.class_swap import stock_class
from asd.operators.sensors.sampled import sampling
from asd.operators.sensors.sampled.sampling import repeats
from asd.operators.sensors.sampled.score import Differs, ProductScore

pytestmark = pytest.mark.usefixtures("clean")
PARTS = ("", "_dx", "_dw")


@pytest.fixture(autouse=True)
def in_each_step(monkeypatch):
    monkeypatch.setattr(sampling, "_EVERY", 1)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def cut(result):
    """A quarter of it is zero."""
    mask = np.ones(result.size, np.float32)
    mask[: result.size // 4] = 0
    return result * Tensor(mask.reshape(result.shape)).astype(result.dtype)


class Faulty(P.MatMul):
    """A product that is wrong in one of its three results, in the steps that are said."""

    def __init__(self, part, wrong):
        super().__init__(transpose_b=True)
        self.part, self.wrong = part, wrong

    def __call__(self, x, w):
        wrong = self.wrong()
        if wrong:
            x = ops.HookBackward(lambda gradient: cut(gradient[0]))(x) if self.part == "_dx" else x
            w = ops.HookBackward(lambda gradient: cut(gradient[0]))(w) if self.part == "_dw" else w
        y = super().__call__(x, w)
        return y + ops.stop_gradient(cut(y) - y) if self.part == "" and wrong else y


# The mathematics.


@pytest.mark.parametrize("dtype", [ms.float32, ms.float16, ms.bfloat16])
@pytest.mark.parametrize(("shape", "size"), [((7, 300, 5), 1.0), ((3, 4, 2000), 1e-12), ((2, 5, 6, 7), 1e12)])
def test_a_rounded_product_fits_and_one_without_a_quarter_does_not(dtype, shape, size):
    *batch, m, k, n = shape
    a, b = normal(*batch, m, k), normal(*batch, k, n, seed=1)
    if dtype != ms.float16:
        a = a * size
    a, b = Tensor(a).astype(dtype), Tensor(b).astype(dtype)
    exact = a.astype(ms.float32).asnumpy().astype(np.float64) @ b.astype(ms.float32).asnumpy()
    c = Tensor(exact.astype(np.float32)).astype(dtype)
    assert float(ProductScore()(a, b, c, None, dtype)[0]) < 0.5
    assert float(ProductScore()(a, b, cut(c), None, dtype)[0]) > 1


def test_one_huge_element_does_not_explain_itself_and_what_is_not_finite_is_not_judged():
    a, b, c = Tensor(normal(4, 8)), Tensor(normal(8, 6, seed=1)), normal(4, 8) @ normal(8, 6, seed=1)
    for wrong, expected in ((1e30, np.inf), (-1e37, np.inf), (np.inf, 0.0), (np.nan, 0.0)):
        c[2, 3] = wrong
        score = float(ProductScore()(a, b, Tensor(c), None, ms.float32)[0])
        assert score > 1e6 if expected else score == 0


def test_a_large_product_is_checked_part_by_part(monkeypatch):
    monkeypatch.setattr("asd.operators.sensors.sampled.score._MOST", 64)
    score, a, b = ProductScore(), normal(3, 8, 5), normal(3, 5, 9, seed=1)
    c = a @ b
    c[1, 4, 7] += 1
    found = [float(score(*map(Tensor, (a, b, c)), None, ms.float32)[0]) > 1 for _ in range(12)]
    assert 0 < sum(found) < 8


@pytest.mark.parametrize("tile", [(0, 0), (15, 0), (0, 15), (15, 15)])
def test_each_tile_of_a_large_product_has_its_turn(tile, monkeypatch):
    monkeypatch.setattr("asd.operators.sensors.sampled.score._MOST", 128)  # four columns, and then eight rows
    score, a, b = ProductScore(), normal(16, 32), normal(32, 16, seed=1)
    c = a @ b
    c[tile] += 10
    assert any(float(score(*map(Tensor, (a, b, c)), None, ms.float32)[0]) > 1 for _ in range(64))


def test_of_a_large_result_a_part_is_compared_with_the_second_one(monkeypatch):
    monkeypatch.setattr("asd.operators.sensors.sampled.score._MOST", 16)
    one, other = normal(8, 8), normal(8, 8)
    other[2, 2] += 1
    differs, found = Differs(), []
    for _ in range(32):
        found.append(float(differs([Tensor(one)], [Tensor(other)])[0]) > 0)
    assert 0 < sum(found) < 16


@pytest.mark.parametrize(
    ("other", "found"),
    [([1, -0.0, 3], "exact"), ([1 + 1e-6, 0, 3], "exact"), ([1.01, 0, 3], "both"), ([1, 0, 1e30], "both")]
    + [([1, 0, each], "both") for each in (np.nan, np.inf)],
)
def test_other_bits_count_in_deterministic_mode_and_what_rounding_does_not_explain_always(other, found):
    one, other = (Tensor(np.array(each, np.float32)) for each in ([1, 0, 3], other))
    nothing = Tensor([np.nan], ms.float32)
    for is_exact in (True, False):
        differs = Differs()
        differs.is_exact = is_exact
        for pair in ((one, other), (other, one)):
            assert float(differs(*([each] for each in pair))[0]) == (np.inf if is_exact or found == "both" else 0)
        assert float(differs([nothing, Tensor([1])], [nothing, Tensor([1])])[0]) == 0


# What it changes: nothing.


@pytest.mark.parametrize("half", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["float32", "float16"])
def test_losses_and_weights_have_the_same_bits(half):
    for make in NETS.values():
        bare, run = Run(make, half, monitored=False).steps(6), Run(make, half).steps(6)
        assert run.losses == bare.losses
        assert run.weights() == bare.weights()
        assert 0 < max(run.seen.values()) < 1
        assert run.findings() == run.problems() == []


def test_between_its_calls_a_layer_has_what_it_had_and_afterwards_its_class_too():
    held = {}
    run = Run(Branches, before=lambda net: held.update({name: dict(vars(cell)) for name, cell in cells(net)}))
    text = re.sub(r"\(asd_tap[\s\S]*?\n    \)\n", "", str(run.net))
    run.steps(3)
    for name, cell in cells(run.net):
        after = dict(vars(cell))
        assert all(after[key] is value for key, value in held[name].items() if callable(value)), name
    assert text.count("Dense(") == 4
    disable()
    assert [name for name, cell in cells(run.net) if name != "norm" and type(cell) is not stock_class(cell)] == []
    run.seen = {}
    assert run.steps(3).seen == {}


def cells(net):
    return [(name, cell) for name, cell in net.cells_and_names() if "asd_tap" not in name]


def test_a_network_is_sampled_by_the_monitor_of_its_next_training_and_freed_with_it():
    first = Run(Perceptron).steps(2)
    assert Run(lambda net=first.net: net).steps(2).seen
    held = weakref.ref(first.net)
    del first
    gc.collect()
    assert held() is None


def test_a_layer_is_copied_and_pickled_as_without():
    net = Run(Perceptron).step().net
    other = copy.deepcopy(net)
    assert type(other.first) is Linear
    assert np.array_equal(other(Tensor(normal(1, WIDTH))).asnumpy(), net(Tensor(normal(1, WIDTH))).asnumpy())
    assert net.first.__reduce_ex__(2)[1] == Linear(1, 1).__reduce_ex__(2)[1]


# What is found.


@pytest.mark.parametrize(("part", "half"), [("", False), ("_dx", False), ("_dw", False), ("_dw", True)])
def test_a_lasting_wrong_product_is_found_where_it_is_and_its_update_refused(part, half):
    run = Run(Perceptron, half, before=lambda net: setattr(net.last, "matmul", Faulty(part, lambda: True)))
    before = run.weights()
    run.step()
    assert run.findings()[0] == (1, f"last.checksum{part}", "anomaly")
    event = next(event for event in run.events if event.rule == "checksum")
    assert (event.refused, event.feature, event.limits) == (True, "score", (1.0,))
    assert run.weights() == before


@pytest.mark.parametrize(("apart", "found"), [(1e-2, {"act.twice"}), (1e-6, set())])
def test_a_call_that_gives_another_result_is_found_and_one_that_rounds_otherwise_is_none(monkeypatch, apart, found):
    noise = iter(range(10_000))
    construct = nn.ReLU.construct
    monkeypatch.setattr(nn.ReLU, "construct", lambda self, x: construct(self, x) + (apart if next(noise) % 2 else 0.0))
    run = Run(Perceptron).steps(4)
    assert {checkpoint for _, checkpoint, _ in run.findings()} == found


# When.


def test_about_four_are_due_in_a_step_each_in_its_turn_by_the_number_of_the_step():
    first = set(Run(Branches).step().seen)
    disable()
    slots.renew()
    run, turns = Run(Branches), []
    for _ in range(12):
        run.seen = {}
        turns.append(set(run.step().seen))
    places = run.monitor.monitor.protections.places
    assert max(map(len, turns)) <= 7
    assert len(set.union(*turns)) == places["results of matrix products"] + places["calls made twice"]
    assert turns[0] == first


def test_what_was_due_is_due_again_in_a_step_that_is_made_again():
    wrong = iter([False, False, False, True])
    run = Run(Perceptron, before=lambda net: setattr(net.last, "matmul", Faulty("", lambda: next(wrong, False))))
    for _ in range(6):
        run.seen = {}
        run.step()
        if run.findings():
            break
    due = {name for name in run.seen if name.startswith("last.")}
    assert due == {"last.twice", *(f"last.checksum{part}" for part in PARTS)}


# Where nothing of it is there.


def test_in_graph_mode_nothing_is_sampled_and_the_status_says_so(graph):
    run = Run(Perceptron)
    protections = run.monitor.monitor.protections
    assert type(run.net.last) is nn.Dense
    assert protections.missing["ASD_OPTIONS=detectors:checksum"] == ["sampled results: in PyNative only"]
    assert protections.on["rule"] == "adaptive with detectors state"


def test_what_is_called_in_a_jitted_function_is_not_sampled_and_that_is_said_after_the_first_step(caplog):
    run = Run(Perceptron)
    protections = run.monitor.monitor.protections
    assert protections.on["rule"] == "adaptive with detectors state, checksum"
    bare = Run(Perceptron, monitored=False)
    x = Tensor(normal(2, WIDTH))
    found = jitted(run.net)(x)
    assert np.array_equal(found.asnumpy(), jitted(bare.net)(x).asnumpy())
    run.monitor.step(found.sum())
    assert type(run.net.last) is nn.Dense
    assert protections.on["rule"] == "adaptive with detectors state"
    assert "sampled results" not in protections.on
    assert "detectors:checksum: sampled results: in PyNative only" in caplog.text
    assert "results of matrix products" not in protections.places


class Masked(nn.Cell):
    """A layer has a product and does not use it, as a mask of causal attention."""

    def __init__(self):
        super().__init__()
        self.last, self.mask = nn.Dense(WIDTH, WIDTH), Linear(WIDTH, WIDTH)
        self.mask.construct = lambda x: x

    def construct(self, x):
        return self.last(self.mask(x))


def test_layers_are_sampled_though_what_is_due_in_the_first_step_multiplies_nothing(monkeypatch):
    monkeypatch.setattr(sampling, "_RESULTS", 1)
    run = Run(Masked).steps(4)
    assert {"last.checksum", "last.twice"} <= set(run.seen)
    assert not any(name.startswith("mask.") for name in run.seen)


def jitted(net):
    @ms.jit
    def call(x):
        return net(x)

    return call


# Which layers.


class Half(nn.Dense):
    settings = type("Settings", (dict,), {"__getattr__": dict.__getitem__})()  # raises KeyError for any attribute

    @ms.jit
    def squared(self, x):
        return self.matmul(x, x)

    def construct(self, x):
        return self.squared(x)


def test_a_product_that_a_compiled_method_uses_stays_where_it_is_and_that_is_said():
    run = Run(lambda: Half(WIDTH, WIDTH))
    assert run.net(Tensor(normal(WIDTH, WIDTH))).shape == (WIDTH, WIDTH)
    assert "a method of it is compiled" in str(run.monitor.monitor.protections.missing)


def test_layers_that_draw_or_write_are_not_called_twice():
    drawn = re.compile(r"ropout|bernoulli|rrelu|multinomial|ssign(Sub|Add)?\(|andom_samples|normal\(")
    found = [each for module in (nn, mint.nn) for each in vars(module).values() if inspect.isclass(each)]
    layers = [each for each in found if issubclass(each, nn.Cell) and drawn.search(own_source(each))]
    assert len(layers) > 8
    for kind in layers:
        made = nn.Cell()
        made.__class__ = kind
        assert not repeats(made), kind
    assert not repeats(nn.BatchNorm1d(3))
    in_place = nn.ReLU()
    in_place.inplace = True
    assert not repeats(in_place)
    assert not repeats(mint.nn.Embedding(3, 3, max_norm=1.0))
    assert not repeats(Linear(3, 3))
    assert repeats(nn.Dense(3, 3))


def own_source(kind):
    return re.sub(r'"""[\s\S]*?"""', "", classes_of(kind.__module__).get(kind.__name__, ""))


@cache
def classes_of(module):
    """The source of each class of a module; `inspect` reads the whole file again for each."""
    text = inspect.getsource(sys.modules[module])
    lines = text.splitlines(keepends=True)
    classes = (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))
    return {node.name: "".join(lines[node.lineno - 1 : node.end_lineno]) for node in classes}


def test_by_default_results_are_sampled_in_one_step_of_sixteen(monkeypatch):
    monkeypatch.setattr(sampling, "_EVERY", 16)
    run = Run(Perceptron)
    due = []
    for _ in range(18):
        run.seen = {}
        due.append(bool(run.step().seen))
    assert [number for number, any_due in enumerate(due, 1) if any_due] == [1, 17]


def test_a_second_look_checks_a_quarter_of_the_layers_and_four_of_them_check_all(monkeypatch):
    all_results = set(Run(Branches).steps(8).seen)
    disable()
    slots.renew()
    monkeypatch.setattr(sampling, "_EVERY", 1000)
    run = Run(Branches, confirm=1.0).steps(30)
    looks = []
    for _ in range(4):
        run.seen = {}
        looks.append(set(run.step(scale=30.0).seen))
    assert sum(map(len, looks)) == len(all_results)
    assert set().union(*looks) == all_results


class Penalty(nn.Cell):
    """The gradient by the input is in the loss, as in a gradient penalty."""

    def __init__(self, net):
        super().__init__()
        self.net, self.gradient = net, ops.grad(net)

    def construct(self, x):
        return (self.net(x) ** 2).mean() + ((self.gradient(x) ** 2).sum(-1) - 1).mean() ** 2


def test_second_derivatives_are_no_alarm():
    def trained(monitored):
        loss = Penalty(nn.SequentialCell(nn.Dense(4, 8), nn.Tanh(), nn.Dense(8, 1)))
        for number, weight in enumerate(loss.trainable_params()):
            weight.set_data(Tensor(normal(*weight.shape, seed=number)))
        optimizer = nn.Adam(loss.trainable_params(), 1e-3)
        step, losses, monitor = nn.TrainOneStepCell(loss, optimizer).set_train(), [], None
        if monitored:
            monitor = StepMonitor(Config(enable=1), sinks=[])
            monitor.attach(step, optimizer)
        for number in range(3):
            value = step(Tensor(normal(6, 4, seed=number)))
            losses.append(value.asnumpy().tobytes())
            if monitor is not None:
                assert [event for event in monitor.step(value) if event.kind == "anomaly"] == []
                assert monitor.monitor.readings
        return losses

    assert trained(True) == trained(False)
