"""The first gradient of a step that breaks its limit is kept as it was, and the worst call is known."""

import math
import subprocess
import sys

import mindspore as ms
import numpy as np
import pytest
from checked_nets import CalledTwice, Decoder, fill, gradients, ids, norm, one_limit, readings, targets
from hypothesis import given, settings
from hypothesis import strategies as st
from mindspore import Parameter, Tensor, nn, ops

from asd import Config
from asd.injection import Fault
from asd.operators import StepMonitor, install
from asd.operators.drill.inject import FaultInjector
from asd.operators.kernel import library as kernel
from asd.operators.measure.look import make_look
from asd.operators.measure.tap import make_tap
from asd.operators.table import slots

pytestmark = [
    pytest.mark.usefixtures("clean"),
    pytest.mark.skipif(kernel.library is None, reason="the C++ kernel was not built"),
]
MODES = {"graph": 0, "pynative": 1}
TYPES = [np.float16, np.float32, np.float64]
often = settings(max_examples=200, deadline=None, derandomize=True)


@pytest.fixture
def table():
    """The kernel's table, which keeps up to 1 MiB."""
    slots.use_backend("kernel")
    chosen = slots.table()
    chosen.read(chosen.sites())
    chosen.keep(1 << 20)
    yield chosen
    chosen.keep(0)


class Sites:
    """Checkpoints with a limit, shown arrays by hand."""

    def __init__(self, table, *names, feature="l2", limit=1.0, scale=1.0):
        self.table = table
        self.sites = [table.new_site(name) for name in names]
        table.set_limits([(site, one_limit(feature, limit)) for site in self.sites], scale)

    def show(self, array, name=None):
        site = next(site for site in self.sites if name in (None, site.name))
        kernel.observe(site.slot, np.ascontiguousarray(array))

    def captures(self):
        return self.table.captures(self.sites)

    def read(self):
        return self.table.read(self.sites)


class Tapped(nn.Cell):
    """One tap, and the gradient 2x at it."""

    def __init__(self, name):
        super().__init__()
        self.tap = make_tap(slots.table().new_site(name))

    def construct(self, x):
        return ops.square(self.tap(x))


class Casting(nn.Cell):
    """Only what MindSpore can compute in bfloat16 on a CPU: casts and products."""

    def __init__(self):
        super().__init__()
        self.tap = make_tap(slots.table().new_site("bfloat"))

    def construct(self, x):
        wide = ops.cast(self.tap(ops.cast(x, ms.bfloat16)), ms.float32)
        return wide * wide


@pytest.mark.parametrize("context", MODES)
@pytest.mark.parametrize("dtype", TYPES)
def test_a_gradient_that_breaks_its_limit_is_kept_bit_for_bit(dtype, context, table):
    ms.set_context(mode=MODES[context])
    net = Tapped("a")
    table.set_limits([(net.tap.site, one_limit("l2", 1.0))], 1.0)
    x = np.random.default_rng(3).normal(size=(4, 3, 5)).astype(dtype)
    gradient = ms.grad(net)(Tensor(x)).asnumpy()
    (kept,) = table.captures([net.tap.site])
    assert (kept.checkpoint, kept.call, kept.dtype, kept.offset) == ("a", 1, np.dtype(dtype).name, 0)
    assert kept.data == gradient.tobytes() == (2 * x).tobytes()
    assert math.prod(kept.shape) == 60
    if context == "graph":
        assert kept.shape == (4, 3, 5)
    ms.set_context(mode=1)


def test_a_bfloat16_gradient_is_kept_as_it_was_in_a_compiled_graph(table):
    ms.set_context(mode=0)
    net = Casting()
    table.set_limits([(net.tap.site, one_limit("l2", 1.0))], 1.0)
    x = np.array([[1.5, -3.0, 0.25]], np.float32)
    ms.grad(net)(Tensor(x)).asnumpy()
    (kept,) = table.captures([net.tap.site])
    assert (kept.dtype, kept.shape) == ("bfloat16", (1, 3))
    bits = np.frombuffer(kept.data, np.uint16).astype(np.uint32) << 16
    np.testing.assert_array_equal(bits.view(np.float32), 2 * x[0])
    ms.set_context(mode=1)


@pytest.mark.parametrize("context", MODES)
@pytest.mark.parametrize("action", ["log", "skip"])
def test_a_monitor_hands_over_the_gradient_of_the_event_that_was_first(action, context, table):
    """Whether the gate is armed or not."""
    ms.set_context(mode=MODES[context])
    net = fill(Decoder())
    optimizer = nn.SGD(net.trainable_params(), 1e-9)
    monitor = StepMonitor(Config(protection="document", enable=1, on_anomaly=action, upper=(1000, 100)), sinks=[])
    monitor.attach(net, optimizer)
    step = nn.TrainOneStepCell(net, optimizer)
    for factor in (1.0, 1e6, 1.0):
        events = monitor.step(step(ids(1), targets(1) * factor))
        kept, found = monitor.monitor.captures, {each.checkpoint: each for each in monitor.monitor.readings}
        assert len(kept) == (factor > 1)
        if not kept:
            assert events == []
            continue
        assert (kept[0].checkpoint, kept[0].call) == ("norm_out", 1)
        assert (events[0].checkpoint, events[0].micro_batch) == ("norm_out", 1)
        array = np.frombuffer(kept[0].data, kept[0].dtype)
        assert array.size == 2 * 5 * 8
        np.testing.assert_allclose(norm(array), found["norm_out"].l2, rtol=2e-6)
        assert np.abs(array).max() == found["norm_out"].max_abs
    monitor.close()
    ms.set_context(mode=1)


class Recorder(FaultInjector):
    """Keeps what the checks are shown."""

    def __init__(self, fault):
        super().__init__(fault)
        self.shown = []

    def _strike(self, array, **place):
        faulty = super()._strike(array, **place)
        self.shown.append(faulty.copy())
        return faulty


@pytest.mark.parametrize("context", MODES)
@pytest.mark.parametrize("pattern", ["flip=30", "set=nan", "stick=-inf"])
def test_an_injected_fault_is_kept_bit_for_bit(pattern, context, table):
    ms.set_context(mode=MODES[context])
    net = fill(Decoder())
    optimizer = nn.SGD(net.trainable_params(), 1e-9)
    monitor = StepMonitor(Config(protection="document", enable=1, on_anomaly="skip"), sinks=[])
    monitor.attach(net, optimizer)
    injector = Recorder(Fault.parse(f"gradient:blocks.1.norm:{pattern}:step=2"))
    assert injector.attach(net) == "blocks.1.norm"
    step = nn.TrainOneStepCell(net, optimizer)
    for number in (1, 2, 3):
        injector.begin_step()
        events = monitor.step(step(ids(number), targets(number)))
        if number != 2:
            assert (events, list(monitor.monitor.captures)) == ([], [])
            continue
        (kept,) = monitor.monitor.captures
        assert (kept.checkpoint, kept.dtype) == ("blocks.1.norm", "float32")
        assert kept.data == injector.shown[1].tobytes()
    assert len(injector.shown) == 3
    monitor.close()
    ms.set_context(mode=1)


def test_a_monitor_says_how_much_may_be_kept_and_takes_it_back_at_the_end(table):
    net = fill(Decoder())
    monitor = StepMonitor(Config(protection="document", enable=1), sinks=[])
    monitor.attach(net)
    header = kernel.library.asd_header().contents
    assert header.capture_bytes == 16 << 20
    monitor.close()
    assert header.capture_bytes == 0


def test_nothing_is_kept_of_what_is_healthy(table):
    sites = Sites(table, "a", limit=10.0)
    sites.show(np.ones((3, 3), np.float32))
    assert sites.captures() == []


def test_nothing_is_kept_when_it_is_off_or_there_is_no_room_for_one_element(table):
    for size in (0, 3):
        table.keep(size)
        sites = Sites(table, "a")
        sites.show(np.full(3, np.inf, np.float32))
        assert sites.captures() == []
        assert sites.read()[0].non_finite == 3


def test_nothing_is_kept_of_a_checkpoint_that_nobody_judges(table):
    site = table.new_site("a")
    kernel.observe(site.slot, np.full(3, np.nan, np.float32))
    assert table.captures([site]) == []


def test_the_first_one_of_a_step_is_kept_and_the_next_step_keeps_its_own(table):
    sites = Sites(table, "a", "b")
    for step in range(3):
        sites.show([np.float32(0.5)], "b")
        sites.show(np.full(2, 5 + step, np.float32), "b")
        sites.show(np.full(2, np.inf, np.float32), "a")
        (kept,) = sites.captures()
        assert (kept.checkpoint, kept.call) == ("b", 2)
        assert np.frombuffer(kept.data, np.float32).tolist() == [5 + step] * 2
        assert sites.captures() == []
        sites.read()


def test_what_nobody_took_is_dropped_when_its_checkpoint_is_read(table):
    sites = Sites(table, "a")
    sites.show(np.full(2, 5, np.float32))
    sites.read()
    assert sites.captures() == []
    sites.show(np.full(2, 7, np.float32))
    assert np.frombuffer(sites.captures()[0].data, np.float32)[0] == 7


def test_a_slot_given_to_another_checkpoint_takes_no_old_gradient_along(table):
    sites = Sites(table, "a")
    sites.show(np.full(2, 5, np.float32))
    del sites
    sites = Sites(table, "b")
    assert sites.captures() == []


def test_what_belongs_to_another_monitor_stays_for_it(table):
    ours, theirs = Sites(table, "a"), Sites(table, "b")
    theirs.show(np.full(2, 5, np.float32))
    assert ours.captures() == []
    ours.read()
    assert theirs.captures()[0].checkpoint == "b"


@pytest.mark.parametrize("feature", ["l2", "max", "max_square"])
@pytest.mark.parametrize("scale", [1.0, 1024.0, 3.0])
def test_a_value_at_the_limit_is_healthy_and_the_next_larger_one_is_kept(feature, scale, table):
    array = np.array([0.3, -0.7, 0.1], np.float32)
    sites = Sites(table, "a")
    sites.show(array)
    (found,) = sites.read()
    value = (found.l2 if feature == "l2" else found.max_abs) / scale
    value = value * value if feature == "max_square" else value
    for limit, broken in [(value, False), (np.nextafter(value, 0), True), (math.inf, False)]:
        table.set_limits([(sites.sites[0], one_limit(feature, float(limit)))], scale)
        sites.show(array)
        assert len(sites.captures()) == broken
        sites.read()


@pytest.mark.parametrize("dtype", TYPES)
def test_of_a_gradient_that_is_too_large_a_window_around_its_worst_element_is_kept(dtype, table):
    width = np.dtype(dtype).itemsize

    @often
    @given(st.data())
    def check(data):
        size = data.draw(st.integers(1, 60))
        room = data.draw(st.integers(1, 60))
        generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
        array = generator.normal(size=size).astype(dtype) + dtype(2)
        for place in data.draw(st.lists(st.integers(0, size - 1), max_size=3)):
            array[place] = data.draw(st.sampled_from([np.inf, -np.inf, np.nan, 1e4, -1e4]))
        table.keep(room * width + data.draw(st.integers(0, width - 1)))
        sites = Sites(table, "a", limit=0.0)
        sites.show(array)
        (kept,) = sites.captures()
        count = min(size, room)
        assert kept.shape == (size,)
        assert kept.data == array[kept.offset : kept.offset + count].tobytes()
        bad = np.flatnonzero(~np.isfinite(array))
        worst = bad[0] if bad.size else int(np.argmax(np.abs(array)))
        assert 0 <= kept.offset <= worst < kept.offset + count <= size
        if 0 < kept.offset < size - count:
            assert kept.offset == worst - count // 2
        sites.read()

    check()


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 2, 1, 2, 1, 2, 1, 2), (1, 2, 1, 2, 1, 2, 1, 2, 1)])
def test_the_shape_is_kept_up_to_eight_dimensions(shape, table):
    sites = Sites(table, "a")
    array = np.full(shape, 9, np.float64)
    kernel.observe(sites.sites[0].slot, array)
    assert sites.captures()[0].shape == (shape if len(shape) <= 8 else (16,))


OUT_OF_MEMORY = """
import resource
import numpy as np
from asd.operators.kernel import library as kernel
from asd.operators.table.kernel_table import KernelTable

table = KernelTable(kernel.library)
site = table.new_site("a")
table.set_limits([(site, {"max_abs": 1e9, "l2": 1.0, "mean_abs": 1e9})], 1.0)
array = np.full(32 << 20, 2, np.float32)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
_, most = resource.getrlimit(resource.RLIMIT_AS)


def captured(size, room):
    table.keep(size)
    resource.setrlimit(resource.RLIMIT_AS, (used + room, most))
    kernel.observe(site.slot, array)
    count = len(table.captures([site]))
    return count, table.read([site])[0].calls


print(captured(1 << 30, 64 << 20), captured(1 << 30, 200 << 20), captured(1 << 20, 64 << 20))
"""


@pytest.mark.slow
def test_without_memory_for_it_nothing_is_kept_and_everything_else_goes_on():
    """Neither when the kernel finds no room for 128 MiB, nor when the host finds none for its copy."""
    done = subprocess.run([sys.executable, "-c", OUT_OF_MEMORY], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["(0, 1) (0, 1) (1, 1)"], done.stderr


def reference(norms):
    """The first call that is not finite, else the first with the largest norm; from 1."""
    bad = [i for i, value in enumerate(norms) if not math.isfinite(value)]
    return (bad[0] if bad else int(np.argmax(norms))) + 1


def test_the_worst_call_is_the_first_with_the_largest_norm_or_the_first_that_is_not_finite(table):
    @often
    @given(st.lists(st.sampled_from([0.0, -1.0, 1.0, 2.0, 3.0, np.inf, -np.inf, np.nan]), min_size=1, max_size=8))
    def check(values):
        sites = Sites(table, "a")
        for value in values:
            sites.show(np.array([value, 0], np.float32))
        assert sites.read()[0].worst_call == reference(np.abs(values))

    check()


@pytest.mark.parametrize("context", MODES)
@pytest.mark.parametrize("worst", [0, 1, 2])
def test_of_several_micro_batches_the_worst_is_named(worst, context, table):
    ms.set_context(mode=MODES[context])
    net = fill(Decoder())
    install(net)
    grad = ms.value_and_grad(net, None, net.trainable_params())
    for micro_batch in range(3):
        factor = 100.0 if micro_batch == worst else 1.0
        grad(ids(0), targets(0) * factor)[0].asnumpy()
    found = readings()
    assert len(found) == 4
    assert {each.worst_call for each in found.values()} == {worst + 1}
    ms.set_context(mode=1)


@pytest.mark.parametrize("context", MODES)
def test_of_a_layer_called_twice_the_call_with_the_larger_gradient_is_named(context, table):
    ms.set_context(mode=MODES[context])
    truth = fill(CalledTwice(probed=True))
    first, second = map(norm, gradients(truth, [truth.z0, truth.z1], ids(), targets()))
    net = fill(CalledTwice())
    install(net)
    gradients(net, net.trainable_params(), ids(), targets())
    found = readings()["norm"]
    assert found.calls == 2
    assert abs(first - second) > 1e-3 * first
    assert found.worst_call == (1 if second > first else 2)  # the later one comes first on the way back
    ms.set_context(mode=1)


def test_the_operators_keep_no_tensor_and_name_no_call():
    slots.use_backend("operators")
    ms.set_context(mode=1)
    table = slots.table()
    net = Tapped("a")
    table.keep(1 << 20)
    optimizer = nn.SGD([Parameter(np.zeros(2, np.float32), name="w")], 1.0)
    monitor = StepMonitor(Config(protection="document", enable=1, on_anomaly="log", upper=(5, 4)), sinks=[])
    monitor.attach(net, optimizer)
    ms.grad(net)(Tensor(np.array([1e6], np.float32))).asnumpy()
    (event,) = monitor.step()
    assert (event.micro_batch, list(monitor.monitor.captures)) == (0, [])
    monitor.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_bfloat16_output_is_kept_as_bfloat16(table, mode):
    ms.set_context(mode=MODES[mode])

    class Looked(nn.Cell):
        def __init__(self, site):
            super().__init__()
            self.look = make_look(site)

        def construct(self, x):
            return ops.cast(self.look(ops.cast(x, ms.bfloat16)), ms.float32)

    site = table.new_site("output", "Y")
    table.set_limits([(site, {"max_abs": 1.0, "l2": 1.0, "mean_abs": 1.0})], 1.0)
    Looked(site)(Tensor(np.full((2, 3), 4, np.float32))).asnumpy()
    [kept] = table.captures([site])
    assert (kept.dtype, kept.shape, kept.data) == ("bfloat16", (2, 3), bytes.fromhex("8040") * 6)
