"""A refused step is made again: the verdict is right, and the training goes on as if nothing had happened."""

import math
import random

import mindspore as ms
import numpy as np
import pytest
from checked_nets import (
    Decoder,
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
    value_and_grad_loop,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from mindspore import Parameter, Tensor, nn, ops
from mindspore.experimental import optim as experimental

from asd import Config, UnsupportedError
from asd.injection import Fault
from asd.operators import StepMonitor
from asd.operators.drill.inject import FaultInjector
from asd.operators.gate import slots
from asd.operators.private.compiler import compiled_functions
from asd.operators.ranks.exchange import pack, unpack
from asd.operators.rerun import random_state
from asd.operators.rerun.repeatable_step import RepeatableStep
from asd.operators.rerun.rerun import Rerun
from asd.operators.rerun.sibling_runs import assignment
from asd.operators.rerun.step_tensors import form_of, to_host, with_tensors

pytestmark = pytest.mark.usefixtures("clean")
ONCE = "gradient:norm_out:flip=30:step=3"
ALWAYS = "gradient:norm_out:flip=30:step=3:duration=2"


def settings(**more):
    return document(**{"upper": (1000, 100), "replay": True, **more})


class Training:
    """Six steps by Model.train; `replayed=False` leaves out the replay alone."""

    def __init__(self, monkeypatch, fault=None, *, bad=0, replayed=True, make=Moving, config=None):
        ms.set_seed(3)
        np.random.seed(3)  # noqa: NPY002 - the generator that nets draw from
        random.seed(3)
        self.events, self.losses, self.runs = [], Losses(), 0
        self.net = fill(make())
        self.optimizer = nn.Adam(self.net.trainable_params(), 1e-2)
        self.monitor = StepMonitor(config or settings(), sinks=[self.events.append])
        self.injector = FaultInjector(Fault.parse(fault)) if fault else None
        with monkeypatch.context() as patch:
            make_again = RepeatableStep._make

            def count(step, parcel):
                self.runs += 1
                return make_again(step, parcel)

            patch.setattr(RepeatableStep, "_make", count)
            if not replayed:
                patch.setattr(Rerun, "attribute", lambda *_: None)
            callbacks = [self.monitor, self.losses, *([self.injector] if self.injector else [])]
            train_model(self.net, self.optimizer, dataset(range(1, 7), [bad]), *callbacks)

    def state(self):
        generators = [np.random.random(), random.random(), float(ms.get_rng_state().asnumpy().sum())]  # noqa: NPY002
        return {
            **state_of(self.net, self.optimizer),
            "losses": np.array(self.losses.bits),
            "generators": np.array(generators),
        }

    def verdicts(self):
        return [(event.step, event.verdict, event.reason) for event in self.events if event.kind == "replay"]


@pytest.mark.parametrize(
    ("story", "mode"),
    [("transient", "graph"), ("transient", "pynative"), ("persistent", "pynative"), ("poisoned", "pynative")],
    indirect=["mode"],
)
def test_the_training_after_a_replay_equals_one_without_it_bit_for_bit(story, mode, monkeypatch):
    fault, bad = {"transient": (ONCE, 0), "persistent": (ALWAYS, 0), "poisoned": (None, 3)}[story]
    ours = Training(monkeypatch, fault, bad=bad)
    verdicts, state = ours.verdicts(), ours.state()
    theirs = Training(monkeypatch, fault, bad=bad, replayed=False)
    assert_same_bits(state, theirs.state())
    if story == "transient":
        [(step, verdict, reason)] = verdicts
        assert (step, verdict) == (3, "transient")
        assert reason.startswith("a different answer on the same device: norm_out is ")
        assert (ours.runs, ours.monitor._training.rerun.again._adds_up) == (2, False)
        anomaly = next(event for event in ours.events if event.kind == "anomaly")
        [replay] = [event for event in ours.events if event.kind == "replay"]
        for name in ("run", "rank", "device", "step", "checkpoint", "value", "limits", "level", "refused", "evidence"):
            assert getattr(replay, name) == getattr(anomaly, name)
        assert replay.id != anomaly.id
    else:
        steps = [3, 4] if story == "persistent" else [3]
        assert [verdict[:2] for verdict in verdicts] == [(step, "undetermined") for step in steps]
        assert ours.runs == len(steps)
    for name in ("steps", "checks", "refused", "problems", "anomalies", "non_finite"):
        assert getattr(ours.monitor.monitor.status, name, None) == getattr(theirs.monitor.monitor.status, name, None)
    if fault:
        assert ours.injector.changes == theirs.injector.changes
    assert ours.monitor.monitor.state() == theirs.monitor.monitor.state()


def loop(monitor, watch, make=Decoder, fault=ONCE):
    """Four steps of a loop of one's own; the verdicts."""
    net = fill(make())
    optimizer = nn.SGD(net.trainable_params(), 1e-2)
    monitor.attach(net, optimizer)
    injector = FaultInjector(Fault.parse(fault))
    injector.attach(net)
    run = watch(value_and_grad_loop(net, optimizer))
    found = []
    for i in range(1, 5):
        injector.begin_step()
        found += [event for event in monitor.step(run(ids(i), targets(i))) if event.kind == "replay"]
    return [(event.verdict, event.reason) for event in found]


@pytest.mark.parametrize("is_weight", [False, True])  # of a network whose optimizer does not have it
@pytest.mark.parametrize("changes", [False, True])
def test_a_large_parameter_that_is_not_trained_hinders_no_replay_unless_steps_change_it(changes, is_weight, graph):
    net = fill(Decoder())
    net.ballast = Parameter(np.zeros(300_000, np.float32), name="ballast", requires_grad=False)
    monitor = StepMonitor(settings(), sinks=[])

    def watch(run):
        net.ballast.requires_grad = is_weight

        def step(*args):
            net.ballast.set_data(net.ballast + changes)
            return run(*args)

        return monitor.watch_step(step)

    [(verdict, reason)] = loop(monitor, watch, make=lambda: net)
    assert (verdict, " 1.1 MiB " in reason) == (("undetermined", True) if changes else ("transient", False))
    assert monitor._training.rerun.again._now() == []  # too much to copy in each step


@pytest.mark.parametrize("size", [2, 400_000])
def test_a_frozen_parameter_that_the_program_sets_once_hinders_no_later_rerun_if_it_is_small(size, graph):
    net = fill(Decoder())
    net.ballast = Parameter(np.zeros(300_000, np.float32), name="ballast", requires_grad=False)
    net.set_once = Parameter(np.zeros(size, np.float32), name="set_once", requires_grad=False)
    optimizer = nn.SGD(net.trainable_params(), 1e-2)
    monitor = StepMonitor(settings(), sinks=[])
    monitor.attach(net, optimizer)
    run = monitor.watch_step(value_and_grad_loop(net, optimizer))
    for i in range(1, 4):
        monitor.step(run(ids(i), targets(i)))
        net.set_once.set_data(ops.ones_like(net.set_once))
    assert monitor._training.rerun.again.is_repeatable is ("replay" in monitor.monitor.protections.on) is (size == 2)


@pytest.mark.parametrize("kind", [nn.Adam, experimental.SGD])  # the second one counts no updates
@pytest.mark.parametrize("action", ["replay", "confirm"])
def test_a_step_of_which_one_optimizer_made_its_update_is_not_run_again(action, kind, tmp_path):
    net = fill(Decoder())
    half = len(net.trainable_params()) // 2
    first, second = (kind(each, 1e-3) for each in (net.trainable_params()[:half], net.trainable_params()[half:]))
    events, made, confirm = [], [], 0.01 if action == "confirm" else 0.0
    config = Config(enable=1, on_anomaly="skip", confirm=confirm, run_dir=str(tmp_path))
    monitor = StepMonitor(config, sinks=[events.append])
    monitor.attach(net, [first, second])
    gradients = ms.value_and_grad(net, None, [*first.parameters, *second.parameters])

    @monitor.watch_step
    def step(x, y, factor):
        loss, found = gradients(x, y)
        before = first.parameters[0].asnumpy().copy()
        first(found[:half])
        made.append((first.parameters[0].asnumpy() != before).any())
        second(tuple(each * factor for each in found[half:]))
        return loss

    for i in range(1, 10):
        monitor.step(step(ids(i), targets(i), (1e3 if action == "confirm" else math.inf) if i == 7 else 1.0))
    assert sum(made) == 9
    said = [event.reason for event in events if event.kind == "replay" or event.kind == "problem"]
    assert any("already updated the weights" in reason for reason in said), said
    assert {event.verdict for event in events if event.kind == "replay"} <= {"undetermined"}


@pytest.mark.parametrize(("fails", "says", "count"), [(True, "ZeroDivisionError", 5), (False, "norm_out is ", 6)])
def test_a_step_that_fails_or_never_says_the_same_when_it_is_made_again_is_undetermined(fails, says, count):
    calls, net = [], fill(Decoder())

    def restless(step):
        def run(x, y):
            calls.append(x)
            if fails and slots.table().replaying:
                net.norm_out.gamma._grad = net.norm_out.gamma * 1  # as `loss.backward()` does
                raise ZeroDivisionError
            return step(x, y if fails else y * (1 + len(calls) / 64))

        return monitor.watch_step(run)

    monitor = StepMonitor(settings(), sinks=[])
    [(verdict, reason)] = loop(monitor, restless, make=lambda: net)
    assert (verdict, says in reason, len(calls)) == ("undetermined", True, count)
    assert net.norm_out.gamma._grad is None
    assert (slots.table().replaying, monitor.monitor.status.step) == (False, 4)


def test_random_streams_are_put_back():
    def draw():
        numbers = [np.random.normal(), random.gauss(0, 1), random.random()]  # noqa: NPY002
        return [ms.default_generator.get_state().asnumpy().tobytes(), *numbers]

    draw()
    random.gauss(0, 1)  # leaves one number for the next call
    saved = random_state.save()
    first, second = draw(), draw()
    assert first[1] != second[1]
    for state in (saved, unpack(pack(random_state.as_arrays(saved)))):
        random_state.restore(state, python=True)
        assert [draw(), draw()] == [first, second]


@given(st.lists(arrays(st.sampled_from(["f4", "f8", "i4", "?"]), array_shapes(min_dims=0, min_side=0)), max_size=4))
def test_arrays_come_back_from_their_message(sent):
    came = unpack(pack(sent))
    assert [(a.dtype, a.shape, a.tobytes()) for a in came] == [(a.dtype, a.shape, a.tobytes()) for a in sent]


def test_a_batch_of_arrays_is_sent_and_all_else_must_be_alike():
    batch, factor = np.full(3, 2.0, "f2"), Tensor([4.0], ms.bfloat16)
    (same, scaled), _ = came = with_tensors(([batch * 0, factor * 0], 2), iter([batch, to_host(factor)]))
    assert (same.tobytes(), to_host(scaled).tolist()) == (batch.tobytes(), [4.0])
    assert form_of(([batch, factor], 2)) == form_of(came) != form_of(([batch, factor], 3))
    with pytest.raises(UnsupportedError):
        form_of([batch, {1}])


def test_operators_that_draw_are_found_in_what_was_compiled_and_in_what_pynative_called():
    x = Tensor(np.ones((4, 4), np.float32))
    random_state.watch_draws()
    random_state.watch_draws()
    random_state.forget_draws()
    assert random_state.uncontrolled({}) == ""
    assert ops.dropout(x, 0.5).shape == (4, 4)
    assert random_state.uncontrolled({}).endswith(" Dropout")
    random_state.forget_draws()

    @ms.jit
    def compiled(x):
        return ops.standard_normal((4, 4)) + x

    assert random_state.uncontrolled({nn.Dense(2, 2): ""}) == ""
    compiled(x).asnumpy()
    held = {nn.Dropout(p=0.5).set_train(): "blocks.0.drop"}
    assert random_state.uncontrolled(held, compiled_functions()).endswith(" Dropout of blocks.0.drop, StandardNormal")


def test_a_jitted_function_that_draws_hinders_reruns_in_a_second_training_too():
    @ms.jit
    def noisy(y):
        return y + 0 * ops.standard_normal((2, 5, 8))

    monitor = StepMonitor(settings(), sinks=[])
    for _ in range(2):
        [(verdict, reason)] = loop(monitor, lambda run: monitor.watch_step(lambda x, y: run(x, noisy(y))))
        assert (verdict, "StandardNormal" in reason) == ("undetermined", True)


ranks = st.integers(2, 40).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1)))


@given(ranks)
def test_every_suspect_has_a_sibling_and_every_rank_one_batch(case):
    size, suspects = case
    runs = assignment(size, suspects)
    assert len(runs) == size
    for suspect in suspects:
        assert any(batch == suspect for rank, batch in enumerate(runs) if rank != suspect)
    if 2 * len(suspects) <= size:
        assert all(runs[suspect] == suspect for suspect in suspects)
        assert all(batch in suspects for batch in runs)
