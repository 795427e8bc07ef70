"""A second look: what a device did once is healed bit for bit, and what the data did is applied as without it."""

import functools

import mindspore as ms
import numpy as np
import pytest
from checked_nets import (
    HIDDEN,
    SLOW,
    Decoder,
    Drawing,
    Losses,
    Moving,
    assert_same_bits,
    dataset,
    document,
    fill,
    ids,
    state_of,
    targets,
    train_model,
    train_sunk,
    value_and_grad_loop,
)
from mindspore import nn, ops

from asd import Config, ConfigError
from asd.injection import Fault
from asd.operators import StepMonitor
from asd.operators.drill.inject import FaultInjector
from asd.operators.gate import slots, table
from asd.operators.monitor.training_watch import TrainingWatch
from asd.operators.rerun import audit
from asd.operators.rerun.repeatable_step import RepeatableStep

pytestmark = pytest.mark.usefixtures("clean")
STEPS, BAD = 9, 7
ENVIRONMENT = {"NPU_ASD_ENABLE": "1", "ASD_RULE": "adaptive", "ASD_ON_ANOMALY": "skip", "ASD_OPTIONS": "confirm:0.01"}
SUSPICIOUS = f"gradient:norm_out:scale=1e3:step={BAD}:elements=80"


def settings(**more):
    return document(**{"rule": "adaptive", "confirm": 0.01, **more})


class Training:
    """Nine steps by Model.train, of which the seventh may have a fault or a far too large target."""

    def __init__(self, monkeypatch, fault=None, *, factor=1.0, config=None, make=Moving, train=train_model):
        ms.set_seed(3)
        np.random.seed(3)  # noqa: NPY002 - the generator that nets draw from
        self.events, self.runs, self.losses = [], 0, Losses()
        self.net = fill(make())
        self.optimizer = nn.Adam(self.net.trainable_params(), 1e-3)
        self.monitor = StepMonitor(config or settings(), sinks=[self.events.append], replay=False)
        injector = FaultInjector(Fault.parse(fault)) if fault else None
        make_anew = RepeatableStep.rerun_for_good

        def count(step):
            self.runs += 1
            return make_anew(step)

        with monkeypatch.context() as patch:
            patch.setattr(RepeatableStep, "rerun_for_good", count)
            callbacks = [self.monitor, self.losses, *([injector] if injector else [])]
            train(self.net, self.optimizer, dataset(range(1, STEPS + 1), [BAD], factor), *callbacks)

    def state(self):
        return state_of(self.net, self.optimizer)

    def told(self):
        return [(event.step, event.kind, event.level.name, event.verdict) for event in self.events]


@functools.cache
def healthy(mode):
    """Losses and state of a training in which nothing happens, made once in each mode."""
    looks, look = [], TrainingWatch._look
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingWatch, "_look", lambda *args: looks.append(1) or look(*args))  # each waits in graph mode
        training = Training(patch)
    assert (training.runs, training.events, len(looks)) == (0, [], STEPS * {"graph": 1, "pynative": 2}[mode])
    return training.losses.bits, training.state()


@pytest.mark.parametrize(
    ("mode", "fault", "train"),
    [
        pytest.param("graph", SUSPICIOUS, train_model, marks=SLOW),
        ("graph", SUSPICIOUS, train_sunk),
        pytest.param("graph", f"output:norm_out:set=nan:step={BAD}", train_model, marks=SLOW),  # which the loss shows
        ("pynative", f"gradient:norm_out:flip=30:step={BAD}", train_model),
        pytest.param("pynative", SUSPICIOUS, train_sunk, marks=SLOW),
    ],
    indirect=["mode"],
)
def test_what_happened_once_is_told_and_leaves_no_trace(mode, fault, train, monkeypatch):
    healed = Training(monkeypatch, fault, train=train)
    told = healed.told()
    assert {line[:3] for line in told} == {(BAD, "anomaly", "ERROR"), (BAD, "replay", "ERROR")}
    assert [line[3] for line in told if line[1] == "replay"] == ["transient"]
    losses, state = healthy(mode)
    assert healed.runs == 1
    assert healed.losses.bits == losses  # those of the run that counts
    assert_same_bits(healed.state(), state)
    assert "norm_out" in {event.checkpoint for event in healed.events}
    assert {(event.refused, event.healed) for event in healed.events} == {(False, True)}
    judged = healed.monitor.monitor
    assert (judged.status.refused, judged.status.healed) == (0, 1)  # the step was made, with its own update
    assert ("sunk data" in judged.protections.on) is (train is train_sunk and mode == "graph")


@pytest.mark.parametrize("on_anomaly", ["log", "skip", pytest.param("stop", marks=SLOW)])
def test_sunk_data_train_to_the_same_bits_with_audits_and_without_detection(on_anomaly, graph, monkeypatch):
    monkeypatch.setattr(audit, "EVERY", 2)
    monkeypatch.setattr(audit, "FIRST", {})
    for settings in (Config(enable=1, on_anomaly=on_anomaly), Config(enable=0)):
        training = Training(monkeypatch, config=settings, train=train_sunk)
        assert training.losses.bits == healthy("graph")[0]
        assert_same_bits(training.state(), healthy("graph")[1])
        told = str(training.monitor.monitor.protections.on) if settings.enabled else ""
        assert ("alike bit for bit" in told) is ("compiled in" in told) is (settings.enabled and on_anomaly != "log")


@pytest.mark.parametrize("refuses", [True, False])
def test_where_a_call_makes_several_steps_the_event_names_the_refused_one(refuses, graph, monkeypatch):
    config = settings() if refuses else settings(on_anomaly="log", confirm=0.0)
    # The third call makes steps 7 to 9, and of its runs the seed strikes the second.
    train, fault = functools.partial(train_sunk, steps=3), "gradient:norm_out:set=inf:step=3:chance=0.2:seed=48"
    training = Training(monkeypatch, fault, config=config, train=train)
    assert ("sink_size=1" in str(training.monitor.monitor.protections.missing)) is refuses
    told = [each for each in training.events if each.level.name != "NORMAL"]
    named = {(each.step, each.level.name, each.refused, "of steps 7 to 9" in each.reason) for each in told}
    assert named == {(8 if refuses else 9, "ERROR", refuses, True)}


class Recurrent(Decoder):
    """Three dropouts drop nothing: one that `nn.LSTM` holds, an operator, a function; a `Generator` gives numbers."""

    def __init__(self):
        super().__init__()
        self.lstm, self.nothing = nn.LSTM(HIDDEN, HIDDEN, batch_first=True), ops.Dropout(1.0)
        self.generator, self.twelve = ms.Generator().manual_seed(5), ms.Tensor(12, ms.int64)

    def construct(self, x, y):
        y = y * ops.cos(ops.cast(self.generator._step(self.twelve)[1], ms.float32))  # a CPU has no kernel that draws so
        x = ops.dropout(self.nothing(self.embedding(x))[0], p=0.0)
        return ops.mean(ops.square(self.norm_out(self.lstm(x)[0]) - y))


def test_a_step_whose_random_numbers_can_be_put_back_is_made_again(mode, monkeypatch):
    monkeypatch.setattr(slots.Table, "CAPACITY", 4)  # the table grows, too
    slots.renew()
    healed = Training(monkeypatch, SUSPICIOUS, make=Recurrent)
    assert {line[:3] for line in healed.told()} == {(BAD, "anomaly", "ERROR"), (BAD, "replay", "ERROR")}
    assert (healed.runs, healed.losses.bits) == (1, Training(monkeypatch, make=Recurrent).losses.bits)


def no_second_look(caplog):
    told = "not active, or not everywhere: ASD_OPTIONS:confirm: no step is re-run: "
    return [line.removeprefix(told) for line in caplog.messages if line.startswith(told)]


class Counting(Decoder):
    """Python counts its calls, and the count matters."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def construct(self, x, y):
        self.calls += 1
        return super().construct(x, y) * self.calls


@pytest.mark.parametrize(
    ("mode", "make", "named"),
    [pytest.param("graph", Drawing, "StandardNormal", marks=SLOW), ("pynative", Counting, ".calls ")],
    indirect=["mode"],
)
def test_a_step_that_can_t_be_made_again_is_told_once_with_the_reason(mode, make, named, monkeypatch, caplog):
    training = Training(monkeypatch, make=make, factor=3e2)
    assert [named in reason for reason in no_second_look(caplog)] == [True]
    assert (training.runs, getattr(training.net, "calls", STEPS)) == (0, STEPS)


def test_a_fault_that_lasts_is_an_error_from_its_third_step_on_as_without_a_second_look(monkeypatch):
    training = Training(monkeypatch, SUSPICIOUS.replace("norm_out", "blocks.0.norm") + ":duration=9")
    assert training.runs == 3
    of_place = [(event.step, event.level.name) for event in training.events if event.checkpoint == "blocks.0.norm"]
    assert of_place == [(7, "WARNING"), (8, "WARNING"), (9, "ERROR")]


@pytest.mark.parametrize("explained", [False, True], ids=["", "by-limits-before"])
def test_what_is_refused_though_the_values_of_a_rerun_fit_is_a_fault_of_the_device(explained, graph, monkeypatch):
    write, count, refused = table.write, table.Table.newly_refused, []

    def counted(*args):
        refused.append(count(*args))
        return refused[-1]

    def written(to, array):  # the limits of the rerun, by which suspicious values fit, do not arrive
        if "bounds" in to.name and refused and refused.pop():
            return
        write(to, array)

    monkeypatch.setattr(table.Table, "newly_refused", counted)
    monkeypatch.setattr(table, "write", written)
    if explained:
        monkeypatch.setattr(table.Table, "forget_limits", lambda self: None)
    training = Training(monkeypatch, factor=3e2)
    by_gate = [event.rule == "gate" for event in training.events if (event.step, event.kind) == (BAD, "anomaly")]
    assert (sum(by_gate), by_gate[0]) == (1, not explained)


def own_loop(config, watch, bad=(BAD,)):
    """Nine steps, the seventh or others with far too large a target, as `watch` makes them: events and status."""
    net = fill(Decoder())
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    events = []
    monitor = StepMonitor(config, sinks=[events.append], replay=False)
    monitor.attach(net, optimizer)
    made = watch(monitor, value_and_grad_loop(net, optimizer))
    for i in range(1, STEPS + 1):
        monitor.step(made(ids(i), targets(i) * (3e2 if i in bad else 1)))
    return events, monitor.monitor.status


@pytest.mark.parametrize(
    ("action", "why"),
    [("skip", "not again"), pytest.param("stop", "not again", marks=SLOW), ("skip", "already updated")],
)
def test_a_warning_whose_step_can_t_be_made_again_is_told_and_the_training_goes_on(action, why):
    def watch(monitor, step):
        def once(x, y):
            if slots.table().replaying:
                raise RuntimeError("not again")
            if why == "already updated":
                step(x, targets())
            return step(x, y)

        return monitor.watch_step(once)

    events, status = own_loop(settings(on_anomaly=action), watch, bad=(BAD, BAD + 1))
    assert [why in event.reason for event in events if event.kind == "problem"] == [True]
    told = {(event.step, event.kind) for event in events}
    assert told == {(BAD, "problem"), (BAD, "anomaly"), (BAD + 1, "anomaly")}
    assert (status.steps, status.refused) == (STEPS, 1)  # the next suspicious one was applied


def test_an_optimizer_behind_the_declared_step_is_an_obstacle_and_no_update_is_lost():
    net = fill(Decoder())
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    monitor = StepMonitor(settings(), sinks=[], replay=False)
    monitor.attach(net, optimizer)
    gradients = monitor.watch_step(ms.value_and_grad(net, None, optimizer.parameters))
    for i in range(1, STEPS + 1):
        loss, found = gradients(ids(i), targets(i) * (3e2 if i == BAD else 1))
        optimizer(found)
        monitor.step(loss)
    assert (monitor._training.rerun.again.is_repeatable, monitor.monitor.status.refused) == (False, 0)


def test_a_step_that_nobody_remembered_is_not_taken_for_the_one_before():
    def watch(monitor, step):
        watched = monitor.watch_step(step)
        steps = iter([*[watched] * (BAD - 1), step, *[watched] * STEPS])
        return lambda x, y: next(steps)(x, y)

    events, status = own_loop(settings(), watch)
    assert {event.level.name for event in events if event.kind == "anomaly"} == {"WARNING"}
    assert ([event.step for event in events if event.kind == "problem"], status.refused) == ([BAD], 1)


def test_a_training_cell_under_asd_run_returns_the_loss_of_the_run_that_counts(monkeypatch, autostarted):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    def losses(fault):
        net = fill(Decoder())
        cell = nn.TrainOneStepCell(net, nn.Adam(net.trainable_params(), 1e-3)).set_train()
        injector = FaultInjector(Fault.parse(fault), 2)
        found = [cell(ids(1), targets(1)).asnumpy().tobytes()]  # which puts the checks in
        injector.attach(cell)
        for i in range(2, STEPS + 1):
            injector.begin_step()
            found.append(cell(ids(i), targets(i)).asnumpy().tobytes())
        return found, len(injector.changes)

    struck, healthy = (losses(f"output:norm_out:set=nan:step={step}") for step in (BAD, 99))
    assert (struck[1], healthy[1]) == (1, 0)
    assert struck[0] == healthy[0]


def test_one_of_save_and_restore_alone_is_an_error():
    with pytest.raises(ConfigError, match="save"):
        StepMonitor(settings(), sinks=[]).watch_step(lambda: None, save=dict)


class OwnCell(nn.TrainOneStepCell):
    """May change anything."""


@pytest.mark.parametrize(
    ("make", "declared", "repeats"),
    [(nn.TrainOneStepCell, False, True), (OwnCell, False, False), (OwnCell, True, True)],
)
def test_training_cells_of_mindspore_are_known_and_ones_of_the_user_have_to_be_declared(make, declared, repeats):
    net = fill(Decoder())
    cell = make(net, nn.SGD(net.trainable_params(), 1e-2)).set_train()
    monitor = StepMonitor(settings(), sinks=[], replay=False)
    if declared:
        monitor.watch_step(cell)
    train_model(cell, None, dataset(range(3)), monitor)
    assert ("ASD_OPTIONS:confirm" in monitor.monitor.protections.missing) is not repeats
