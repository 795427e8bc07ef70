"""A training that forgets `step`: one refused update is all it loses, and it is told."""

import gc
import logging
import weakref

import mindspore as ms
import numpy as np
import pytest
from checked_nets import GRAPH, Decoder, assert_same_bits, fill, ids, targets, values
from mindspore import Parameter, Tensor, amp, nn, ops

from asd import Config, Level
from asd.operators import StepMonitor, enable, guard
from asd.operators.gate import slots
from asd.operators.gate.tap import make_observer

pytestmark = pytest.mark.usefixtures("clean")
STEPS, BAD = 12, 4
RULE = Config(protection="document", enable=1, on_anomaly="skip", rule="threshold", upper=(1000, 100))
AFTER_REFUSAL, NEVER = "an update was refused", "`step` was never called"


class Training:
    """A loop of one's own; step `bad` has a huge target, step `omitted` is not made."""

    def __init__(self, config=None, *, net=None, by="__call__", bad=None, omitted=None, every=0, steps=STEPS, own=True):
        net = self.net = net or fill(Decoder())
        optimizer = nn.Adam(net.trainable_params(), 1e-3)
        cell = nn.TrainOneStepCell(net, optimizer).set_train()
        self.events, self.monitor, self.losses = [], None, {}
        if config is not None:
            self.monitor = StepMonitor(config, sinks=[self.events.append], replay=False)
            self.monitor.attach(cell, optimizer if own else None)
        for step in range(steps):
            if step != omitted:
                loss = getattr(cell, by)(ids(step), targets(step) * (1e8 if step == bad else 1))
                self.losses[step] = loss.asnumpy().tobytes()
            if every and step % every == 0:
                self.monitor.step()
        self.weights = values([*net.get_parameters(), *optimizer.get_parameters()])

    def told(self):
        assert {event.kind for event in self.events} <= {"problem"}
        return [event.reason for event in self.events]


@GRAPH
def test_a_refused_update_does_not_stop_those_after_it_though_nobody_calls_step(mode):
    refused = slots.table().refused()
    ours, theirs = Training(RULE, bad=BAD), Training(omitted=BAD)
    assert slots.table().refused() == refused + 1
    assert_same_bits(ours.weights, theirs.weights)
    assert {step: loss for step, loss in ours.losses.items() if step != BAD} == theirs.losses
    if mode == "graph":
        assert ours.events == []  # Parameters can be read when the training is over, and not before
        ours.monitor.close()
    assert len(ours.told()) == 1
    assert ours.told()[0].startswith(AFTER_REFUSAL)
    assert ours.monitor.monitor.status.problems >= 1


@pytest.mark.parametrize(
    ("config", "mode"),
    [(RULE, "graph"), (RULE, "pynative"), (Config(protection="document", enable=1, on_anomaly="log"), "pynative")],
    indirect=["mode"],
)
def test_a_training_that_never_calls_step_is_told_that_nothing_is_judged(config, mode):
    training = Training(config)
    if mode == "graph" or config.on_anomaly == "log":  # updates are counted by who may refuse them, in PyNative
        assert training.events == []
        training.monitor.close()
    assert len(training.told()) == 1
    assert NEVER in training.told()[0]
    training.monitor.close()
    assert len(training.events) == 1


@GRAPH
def test_a_monitor_that_nobody_holds_after_attach_is_heard_all_the_same(mode, monkeypatch):
    ends = []
    monkeypatch.setattr("atexit.register", ends.append)
    net, events = fill(Decoder()), []
    optimizer = nn.SGD(net.trainable_params(), 1e-3)
    cell = nn.TrainOneStepCell(net, optimizer).set_train()
    StepMonitor(RULE, sinks=[events.append], replay=False).attach(cell, optimizer)
    gc.collect()
    for step in range(STEPS):
        cell(ids(step), targets(step)).asnumpy()
    for end in ends if mode == "graph" else ():
        end()
    assert [NEVER in event.reason for event in events] == [True]


def test_what_was_set_aside_is_read_together_with_what_came_later(mode):
    training = Training(RULE, bad=1, steps=3)
    assert training.events == []
    sites = [site for site in slots.table().sites() if site.watched_by]
    readings = {reading.checkpoint: reading for reading in slots.table().read(sites)}
    assert readings["norm_out"].value > 1e3
    assert slots.table().read(sites) == []


def test_one_who_calls_step_now_and_then_is_told_nothing():
    assert Training(RULE, every=5).events == []


def test_a_training_cell_that_is_stepped_by_itself_and_loaded_weights_are_told_nothing(autostarted, capfd):
    net = fill(Decoder())
    for step in range(20):
        loaded = {each.name: Parameter(np.full(each.shape, step, np.float32)) for each in net.get_parameters()}
        ms.load_param_into_net(net, loaded)
        ms.grad(net, None, net.trainable_params())(ids(), targets())
    Training()
    gc.collect()
    assert autostarted.monitor is None
    assert "problem" not in capfd.readouterr().err


@pytest.mark.parametrize(("config", "by"), [(None, "__call__"), (RULE, "__call__"), (None, "construct")])
def test_a_second_training_of_a_network_is_judged_too(config, by, mode, autostarted):
    enable()
    first = Training(config, by=by)
    if config is not None:
        first.monitor.close()  # as `Model.train` does
    Training(net=first.net, bad=BAD, by=by)
    assert slots.table().refused() == 1


@pytest.mark.parametrize("own", [True, False])
def test_a_loop_with_its_own_monitor_is_left_to_it_after_a_training_whose_network_lives_on(own, autostarted):
    enable()
    first = Training(RULE)
    first.monitor.close()
    training = Training(RULE, by="construct", bad=BAD, every=1, own=own)
    assert {(event.step, event.refused) for event in training.events if event.level is Level.ERROR} == {(BAD + 1, own)}
    assert (autostarted.monitor is None) == own  # else it is told that no update is refused


@pytest.mark.parametrize("first", [True, False])
def test_a_cell_that_goes_on_after_the_training_of_another_monitor_is_judged_again(first, mode, autostarted):
    net = fill(Decoder())
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    cell = nn.TrainOneStepCell(net, optimizer).set_train()
    for given in (first, not first, False):
        monitor = StepMonitor(RULE, sinks=[], replay=False)
        if given:
            monitor.attach(cell, optimizer)
        for step in range(STEPS):
            loss = cell(ids(step), targets(step) * (1e8 if step == BAD and not given else 1))
            if given:
                monitor.step(loss)
                assert monitor.monitor.readings
        monitor.close()
    assert slots.table().refused() == 2
    assert autostarted.monitor is None


def test_loops_in_turn_over_the_same_weights_refuse_both(mode, autostarted, monkeypatch):
    monkeypatch.setenv("ASD_PROTECTION", "full")  # the first one keeps the gradients of its weights
    enable()
    net = fill(Decoder())
    weights = net.trainable_params()
    optimizers, gradients_of = [nn.SGD(weights, 1e-6), nn.Adam(weights, 1e-3)], ms.value_and_grad(net, None, weights)
    for step in range(STEPS):
        for optimizer in optimizers:
            optimizer(gradients_of(ids(step), targets(step) * (1e8 if step == BAD else 1))[1])
    assert slots.table().refused() == 2


@pytest.mark.parametrize("attached", [1, 2])
def test_a_second_optimizer_is_told_within_ten_steps_or_refuses_with_the_first(mode, attached, autostarted):
    net, refused = fill(Decoder()), []
    weights = net.trainable_params()
    optimizers = [nn.SGD(part, 1e-6) for part in (weights[:3], weights[3:])]
    monitor = StepMonitor(RULE, sinks=[], replay=False)
    monitor.attach(net, optimizers if attached == 2 else optimizers[0])
    gradients_of = ms.value_and_grad(net, None, weights)
    for step in range(10):
        loss, gradients = gradients_of(ids(step), targets(step) * (1e8 if step == BAD else 1))
        before = values(weights)
        optimizers[0](gradients[:3])
        optimizers[1](gradients[3:])
        monitor.step(loss)
        after = values(weights)
        refused.append(all(np.array_equal(before[name], after[name]) for name in before))
    assert refused == [step == BAD and attached == 2 for step in range(10)]
    assert (autostarted.monitor is None) == (attached == 2)
    assert autostarted.monitor is None or autostarted.monitor.status.unjudged


@pytest.mark.parametrize("kind", ["function", "method", "gradients", "attached"])
def test_a_compiled_step_without_a_call_of_step_is_told_as_an_error_within_ten_steps(mode, kind, autostarted, caplog):
    net, monitor = fill(Decoder()), None
    weights = ms.ParameterTuple(net.trainable_params())
    optimizer, gradients_of = nn.SGD(weights, 1e-6), ms.value_and_grad(net, None, weights)

    def by_optimizer(x, y):
        loss, gradients = gradients_of(x, y)
        return ops.depend(loss, optimizer(gradients))

    class Trainer:
        @ms.jit
        def step(self, x, y):
            return by_optimizer(x, y)

    differentiate, steps = ms.jit(gradients_of), {"method": Trainer().step}
    steps["gradients"] = lambda x, y: optimizer(differentiate(x, y)[1])
    if kind == "attached":
        monitor = StepMonitor(RULE)
        monitor.attach(net, optimizer)
    step = steps.get(kind, ms.jit(by_optimizer))
    for number in range(10):
        step(ids(number), targets(number))
    assert (autostarted.monitor if monitor is None else monitor.monitor).status.unjudged
    assert "ERROR" in {record.levelname for record in caplog.records}


def test_another_optimizer_of_the_same_step_is_refused_after_the_values_were_set_aside(mode):
    training = Training(RULE, steps=1)
    training.monitor.step()
    table = slots.table()
    weights = [Parameter(np.zeros(2, np.float32), name=f"w{i}") for i in range(3)]
    optimizers = [guard(nn.SGD(ms.ParameterTuple([weight]), 1.0)) for weight in weights]

    def applied(*chosen):
        before = [weight.asnumpy().copy() for weight in weights]
        for i in chosen:
            optimizers[i]((Tensor(np.ones(2, np.float32)),))
        return [not np.array_equal(weight.asnumpy(), old) for weight, old in zip(weights, before, strict=True)]

    site = table.new_site("site")
    observe = make_observer([site])
    table.set_limits([(site, 1.0)], 1.0)
    table.arm(True)
    observe((Tensor(np.full(2, 5.0, np.float32)),)).asnumpy()
    refused = table.refused()
    assert (applied(0, 1, 2), table.refused()) == ([False, False, False], refused + 3)
    assert applied(0, 1, 2) == [True, True, True]
    observe((Tensor(np.full(2, 5.0, np.float32)),)).asnumpy()
    assert applied(0, 1) == [False, False, False]
    table.read([site])
    assert applied(2, 0, 1) == [True, True, True]


@pytest.mark.parametrize("rule", ["threshold", "adaptive"])
def test_a_monitor_that_nobody_holds_is_gone_at_once(rule):
    net = fill(Decoder())
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    monitor = StepMonitor(Config(protection="document", enable=1, rule=rule), sinks=[], replay=True)
    monitor.attach(net, optimizer)
    gate, held = optimizer.asd_gate.gate, weakref.ref(monitor)
    assert not gate.is_free
    gc.disable()  # what is in a circle would stay until a collection, and its gate with it
    try:
        del monitor
        assert held() is None
        assert gate.is_free
    finally:
        gc.enable()


@pytest.mark.parametrize("scaled", [True, False])
def test_a_step_that_the_program_skips_itself_refuses_no_later_update(scaled, mode, autostarted, caplog):
    enable()
    caplog.set_level(logging.INFO, "asd")
    bad, net = (0, BAD, BAD + 2) if scaled else (1, BAD), fill(Decoder())
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    scaler = amp.DynamicLossScaler(2.0**10 if scaled else 1.0, 2, 50)

    def forward(x, y):
        return scaler.scale(net(x, y))

    gradients_of = ms.value_and_grad(net if not scaled else forward, None, optimizer.parameters)
    for step in range(STEPS):
        found = gradients_of(ids(step), targets(step) * (np.inf if step in bad else 1))[1]
        if applied := bool(amp.all_finite(found)):
            optimizer(scaler.unscale(found))
        scaler.adjust(Tensor(applied))
    assert int(optimizer.global_step) == STEPS - len(bad)
    assert ("the program skipped a step" in caplog.text, "nothing was checked" in caplog.text) == (True, False)
