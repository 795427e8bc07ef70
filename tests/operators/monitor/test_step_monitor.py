"""StepMonitor in a training: what it does about an anomaly, about its own failures, and about a restart."""

import json
import math
import os
import shutil
from functools import cache, wraps
from pathlib import Path

import checked_nets
import mindspore as ms
import numpy as np
import pytest
from checked_nets import GRAPH, Decoder, assert_same_bits, fill, ids, jitted_step, state_of, targets, values
from mindspore import amp, nn, ops
from mindspore.experimental import optim
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint

from asd import AnomalyDetected, Config, Level, UnsupportedError
from asd.operators import GatherASD, StepMonitor
from asd.operators.gate import slots
from asd.operators.monitor import step_monitor
from asd.origin import Origin
from asd.rules import Threshold
from asd.rundir.manifest import load_manifest, manifest_path
from asd.rundir.statefile import load_state
from asd.sinks import open_sinks
from tests.support.tables import quick

pytestmark = pytest.mark.usefixtures("clean")
NAMES = ["embedding", "blocks.0.norm", "blocks.1.norm", "norm_out"]


def config(on_anomaly="stop", upper=(1000, 100), **kwargs):
    return Config(protection="document", enable=1, on_anomaly=on_anomaly, upper=upper, **kwargs)


def dataset(steps, bad=(), factor=1e6, first=0):
    """The batches of the steps after `first`."""
    return checked_nets.dataset(range(first + 1, steps + 1), bad, factor)


class Run:
    """A training by Model.train with a monitor."""

    def __init__(self, settings, *, make=Decoder, sinks=None, seed=5, **kwargs):
        self.events = []
        self.net = fill(make(), seed)
        self.optimizer = nn.Adam(self.net.trainable_params(), 1e-2)
        self.monitor = StepMonitor(settings, sinks=[self.events.append, *(sinks or [])], **kwargs)
        self.model = Model(self.net, optimizer=self.optimizer)

    def train(self, data, *callbacks):
        self.model.train(1, data, callbacks=[self.monitor, *callbacks], dataset_sink_mode=False)

    def state(self):
        return state_of(self.net, self.optimizer)

    def reasons(self):
        return [event.reason for event in self.events if event.kind == "problem"]


@cache
def _unwatched(_mode, bad):
    """The states after each of four steps without detection."""
    run, states = Run(Config(protection="document", enable=0)), []

    class Keep(Callback):
        def on_train_step_end(self, run_context):
            states.append(run.state())

    run.train(dataset(4, bad), Keep())
    assert run.events == []
    return states


def unwatched(step, bad=()):
    """The state after so many steps without detection, of a training made once in each mode."""
    return _unwatched(ms.get_context("mode"), bad)[step - 1]


@GRAPH
def test_an_anomaly_ends_the_training_with_the_event_and_the_update_is_refused(mode):
    run = Run(config())
    with pytest.raises(AnomalyDetected) as caught:
        run.train(dataset(5, bad=[4]))
    event = caught.value.event
    assert (event.step, event.kind, event.level, event.refused) == (4, "anomaly", Level.ERROR, True)
    assert event.checkpoint in NAMES
    assert event.value > 1000
    assert event.limits == (1000.0,)
    assert (event.rank, event.rule, event.feature, event.code) == (0, "threshold", "l2", "80818C00")
    assert event.device == "CPU:0"
    assert event in run.events
    assert {each.step for each in run.events} == {4}
    assert run.monitor.monitor.status.checks == 16
    assert str(caught.value) == event.sentence()
    assert_same_bits(run.state(), unwatched(3))


@pytest.mark.parametrize(("upper", "level"), [((1000, 100), "ERROR"), ((10**9, 1000), "WARNING")])
def test_what_is_logged_only_and_what_is_of_second_level_is_reported_and_applied(upper, level):
    run = Run(config("log" if level == "ERROR" else "stop", upper))
    run.train(dataset(3, bad=[2]))
    found = {(event.level.name, event.step, event.refused) for event in run.events}
    assert (level, 2, False) in found <= {("ERROR", 2, False), ("WARNING", 2, False)}
    assert_same_bits(run.state(), unwatched(3, bad=(2,)))


def test_switched_off_it_does_nothing_at_all():
    run = Run(Config(protection="document", enable=0))
    kinds = {name: type(cell) for name, cell in run.net.cells_and_names()}
    before = slots.table().sites()
    run.train(dataset(2, bad=[1]))
    assert run.monitor.monitor is None
    assert run.monitor.step() == []
    assert {name: type(cell) for name, cell in run.net.cells_and_names()} == kinds
    assert type(run.optimizer) is nn.Adam
    assert slots.table().sites() == before
    assert run.events == []


def test_switched_off_or_mistyped_in_the_environment_is_said_once_and_by_its_config_never(caplog, monkeypatch):
    step_monitor._warn_once.cache_clear()
    monkeypatch.setenv("NPU_ASD_ENABLE", "0")
    monkeypatch.setenv("ASD_RUL", "adaptive")
    for settings in (Config(protection="document", enable=0), None, None):
        run = Run(settings)
        assert run.monitor.attach(run.net, run.optimizer) is run.optimizer
    assert sum("NPU_ASD_ENABLE is 0" in message for message in caplog.messages) == 1  # and MindSpore's own, once
    assert [line.endswith(" ASD_RULE") for line in caplog.messages if "ASD_RUL " in line] == [True]


def test_a_compiled_step_is_waited_for_even_without_one_of_its_outputs(ahead):
    net = fill(Decoder())
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    monitor = StepMonitor(config("skip"), sinks=[])
    monitor.attach(net, optimizer)
    step = jitted_step(net, optimizer)
    for seed in range(1, 4):
        step(ids(seed, 64, 200), targets(seed, 64, 200))
        monitor.step()
        assert {name: len(values) for name, values in monitor.monitor.history.items()} == dict.fromkeys(NAMES, seed)


def test_that_nothing_is_checked_is_told_once(graph):
    run = Run(config())
    run.model.train(1, dataset(2), dataset_sink_mode=False)  # compiles the graph before the checks are put in
    run.train(dataset(4))
    assert [reason.startswith(NOTHING) for reason in run.reasons()].count(True) == 1


NOTHING = "nothing was checked"


class NothingToCheck(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(8, 8)

    def construct(self, x, y):
        return ops.mean(ops.square(self.dense(y)))


@pytest.mark.parametrize(("scale", "skips"), [(2.0**15, True), (2.0**15, False), (1.0, True)])
def test_an_overflow_is_second_level_where_the_scaler_skips_it_and_its_scale_can_still_fall(scale, skips):
    net = fill(Decoder())
    optimizer = nn.SGD(net.trainable_params(), 1e-3)
    scaler = amp.DynamicLossScaler(scale_value=scale, scale_factor=2, scale_window=1000)
    monitor = StepMonitor(config("skip"), sinks=[], loss_scale=scaler)
    monitor.attach(net, optimizer)
    before = values(net.get_parameters())

    def forward(x, y):
        return scaler.scale(net(x, y))

    loss, found = ms.value_and_grad(forward, None, optimizer.parameters)(ids(), targets() * math.inf)
    if not skips:
        optimizer(found)
    events = monitor.step(loss)
    expected = skips and scale > 1
    assert {event.level for event in events} == {Level.WARNING if expected else Level.ERROR}
    assert all("overflow under a dynamic loss scale" in event.reason for event in events) is expected
    assert_same_bits(values(net.get_parameters()), before)


@pytest.mark.parametrize("overflows", [True, False])
def test_a_step_that_the_scaler_skips_is_no_problem_where_all_checks_are_at_the_optimizer(overflows):
    net = NothingToCheck()
    optimizer = nn.SGD(net.trainable_params(), 1e-3)
    scaler = amp.DynamicLossScaler(scale_value=2.0**10, scale_factor=2, scale_window=1000)
    events = []
    monitor = StepMonitor(Config(enable=1, detectors=("state",)), sinks=[events.append], loss_scale=scaler)
    monitor.attach(net, optimizer)
    ms.value_and_grad(net, None, optimizer.parameters)(ids(), targets())
    if overflows:
        scaler.adjust(ms.Tensor(False))
    monitor.step()
    assert [event.reason.partition(":")[0] for event in events] == ([] if overflows else [NOTHING])


def test_saving_before_attaching_is_refused_with_a_sentence(tmp_path):
    with pytest.raises(UnsupportedError, match="attached to no training yet"):
        StepMonitor(config()).save_state(tmp_path / "x.ckpt")


# The state beside the training's checkpoints.

JUMPY = {"upper": (10**6, 10**5), "sigma": (8, 4)}


def writer(folder, every=4, **more):
    settings = CheckpointConfig(save_checkpoint_steps=every, keep_checkpoint_max=9, **more)
    return ModelCheckpoint("run", str(folder), settings)


@pytest.fixture
def short_memory(monkeypatch):
    """Jumps are judged after 3 values, so that a few steps are enough for a state that matters."""
    original = Threshold.__init__

    @wraps(original)
    def init(self, *args, **kwargs):
        original(self, *args, **{**kwargs, "min_steps": 3})

    monkeypatch.setattr(Threshold, "__init__", init)


def resumed(folder, step, settings, **kwargs):
    run = Run(settings, seed=99, **kwargs)
    saved = ms.load_checkpoint(str(folder / f"run-1_{step}.ckpt"))
    ms.load_param_into_net(run.net, saved)
    ms.load_param_into_net(run.optimizer, saved)
    return run


def story(run):
    """Rule states, and verdicts from step 5 on."""
    monitor = run.monitor.monitor
    late = {name: [item for item in found if item[0] > 4] for name, found in monitor.history.items()}
    return monitor.state(), late, [(e.step, e.checkpoint, e.level, e.value) for e in run.events if e.step > 4]


@pytest.mark.parametrize(("how", "refused"), quick(1, [("resume_from", [3]), ("search", [])]))
def test_a_resumed_training_judges_like_one_that_never_stopped(how, refused, tmp_path, short_memory):
    settings = config("skip", **JUMPY)
    whole = Run(settings)
    whole.train(dataset(8, bad=[7, *refused], factor=1e9), writer(tmp_path / "whole"))
    assert {event.step for event in whole.events if event.level is Level.ERROR} == {7, *refused}

    first = Run(settings)
    first.train(dataset(4, bad=refused, factor=1e9), writer(tmp_path / "first"))
    state_file = tmp_path / "first" / "run-1_4.ckpt.asd-rank0.json"
    assert state_file.is_file()
    given = {"resume_from": tmp_path / "first" / "run-1_4.ckpt"} if how == "resume_from" else {}
    second = resumed(tmp_path / "first", 4, settings, **given)
    second.train(dataset(8, bad=[7], factor=1e9, first=4), writer(tmp_path / "first"))
    assert second.reasons() == []
    assert story(second) == story(whole)
    assert_same_bits(second.state(), whole.state())


@pytest.mark.parametrize(("factor", "announced"), quick(2, [(2.0**15, True), (2.0**15, False), (40.0, False)]))
def test_a_training_gets_past_a_planned_change_at_once_announced_or_resumed(factor, announced, tmp_path):
    settings, changed = Config(enable=1, run_dir=str(tmp_path)), range(21, 29)

    class Announces(Callback):
        def on_train_step_begin(self, run_context):
            if announced and run_context.original_args().cur_step_num == changed[0]:
                run.monitor.expect_change()

    healthy = Run(Config(enable=0))
    healthy.train(dataset(28, changed, factor))
    run = Run(settings, sinks=open_sinks(settings, Origin("job", 0, "host", "CPU:0")))
    data = dataset(28, changed, factor)
    if announced or factor < 2**14:
        run.train(data, Announces())
        assert {event.cause for event in run.events} == (set() if announced else {"change"})
    else:
        with pytest.raises(AnomalyDetected) as ended:
            run.train(data, writer(tmp_path, every=5))
        run = resumed(tmp_path, 20, settings)
        run.train(dataset(28, changed, factor, first=20))
        assert ended.value.event.id in {event.incident for event in run.events}
        assert {event.step for event in run.events} == {21}
    assert {event.level for event in run.events} <= {Level.WARNING}
    assert run.monitor.monitor.status.refused == 0
    assert_same_bits(run.state(), healthy.state())


@pytest.mark.parametrize("make", [nn.Adam, optim.AdamW])  # each counts its updates by another name
def test_a_state_beside_the_file_that_an_optimizer_was_loaded_from_is_found_wherever_it_lies(make, tmp_path):
    ms.set_context(mode=ms.PYNATIVE_MODE)

    def begun(folder, load=None):
        net, events = fill(nn.SequentialCell(nn.LayerNorm((4,)), nn.Dense(4, 4))), []
        optimizer = make(net.trainable_params(), 1e-3)
        if load is not None:
            ms.load_param_into_net(optimizer, ms.load_checkpoint(str(load)))
        monitor = StepMonitor(config(run_dir=str(tmp_path / folder)), sinks=[events.append])
        monitor.attach(net, optimizer)
        return optimizer, monitor, events

    optimizer, monitor, _ = begun("one")
    for _ in range(3):
        optimizer(tuple(ops.ones_like(each) for each in optimizer.parameters))
        monitor.step()
    file = tmp_path / "anywhere" / "own.ckpt"
    file.parent.mkdir()
    ms.save_checkpoint(optimizer, str(file))
    monitor.save_state(file)
    monitor.close()
    optimizer, monitor, events = begun("two", load=file)
    optimizer(tuple(ops.ones_like(each) for each in optimizer.parameters))
    monitor.step()
    assert [event.reason for event in events if "rule state" in event.reason] == []
    assert monitor.monitor.state()["step"] == 4


@pytest.mark.filterwarnings("ignore:getName")  # of MindSpore's own thread
@pytest.mark.parametrize("in_background", [False, "thread"])
def test_every_checkpoint_and_that_of_the_end_gets_the_state_and_the_manifest_of_its_own_step(in_background, tmp_path):
    run = Run(config(manifest=True, run_dir=str(tmp_path / "run")))
    run.train(dataset(7), writer(tmp_path, every=2, async_save=in_background))
    assert run.reasons() == []
    written = [f"run-1_{step}.ckpt" for step in (2, 4, 6, 7)]
    states = [load_state(tmp_path / f"{name}.asd-rank0.json") for name in written]
    assert [state["step"] for state in states] == [2, 4, 6, 7]
    assert all(sorted(state["checkpoints"]) == sorted(NAMES) for state in states)
    assert [state["checkpoints"]["norm_out"]["count"] for state in states] == [2, 4, 6, 7]
    assert [load_manifest(manifest_path(tmp_path / name)).step for name in written] == [2, 4, 6, 7]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A folder with the checkpoint of step 4 and the state beside it."""
    folder = tmp_path_factory.mktemp("original")
    Run(config(**JUMPY)).train(dataset(4), writer(folder))
    return folder


@pytest.fixture
def saved(original, clean, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(original, tmp_path / "saved"))


def of_another_network(state):
    content = json.loads(state.read_text())
    content["checkpoints"] = {f"other.{name}": rule for name, rule in content["checkpoints"].items()}
    state.write_text(json.dumps(content))


SPOILED = {"missing": (Path.unlink, "No such file or directory"), "of another network": (of_another_network, "other.")}


@pytest.mark.parametrize("how", SPOILED)
def test_a_state_that_can_not_be_used_is_a_problem_and_the_training_goes_on(how, saved):
    spoil, said = SPOILED[how]
    spoil(saved / "run-1_4.ckpt.asd-rank0.json")
    run = resumed(saved, 4, config(**JUMPY), resume_from=saved / "run-1_4.ckpt")
    run.train(dataset(6, first=4))
    (reason,) = run.reasons()
    assert said in reason
    assert ".." not in reason
    assert [event.kind for event in run.events] == ["problem"]
    assert len(run.monitor.monitor.history["norm_out"]) == 2


def test_a_damaged_state_is_passed_over_in_the_search(saved):
    state = saved / "run-1_4.ckpt.asd-rank0.json"
    (saved / "newer.ckpt.asd-rank0.json").write_text("{")
    (saved / "other.ckpt.asd-rank0.json").write_text(state.read_text().replace('"updates": 4', '"updates": 5'))
    run = resumed(saved, 4, config(**JUMPY))
    run.train(dataset(6, first=4), writer(saved))
    assert run.reasons() == []
    assert run.monitor.monitor.state()["checkpoints"]["norm_out"]["count"] == 6


def test_a_state_that_cannot_be_written_is_an_error_of_the_call_and_a_problem_of_the_callback(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    run = Run(config())
    run.train(dataset(1))
    with pytest.raises(OSError, match="Not a directory|File exists"):
        run.monitor.save_state(tmp_path / "file" / "x.ckpt")

    def full(*_args, **_kwargs):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("asd.operators.monitor.rule_state.save_state", full)
    run = Run(config())
    run.train(dataset(4), writer(tmp_path / "ckpt"))
    (reason,) = run.reasons()
    assert all(word in reason for word in (str(tmp_path / "ckpt" / "run-1_4.ckpt"), "No space left"))
    assert list((tmp_path / "ckpt").glob("*.json")) == []


def test_training_once_more_with_the_same_monitor_goes_on_with_its_rules():
    once, twice = Run(config()), Run(config())
    once.train(dataset(4))
    twice.train(dataset(2))
    twice.train(dataset(4, first=2))
    assert twice.events == []
    assert twice.monitor.monitor.state() == once.monitor.monitor.state()
    assert_same_bits(twice.state(), once.state())


def test_a_check_operator_that_no_network_holds_is_judged_too_and_still_in_a_second_training(enabled):
    gather = GatherASD()
    table = ms.Parameter(np.ones((13, 8), np.float32), name="table")

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.table = table
            self.norm = nn.LayerNorm((8,))

        def construct(self, x, y):
            return ops.mean(ops.square(self.norm(gather(self.table, x, 0)) - y))

    run = Run(config(), make=Net)
    run.train(dataset(2))
    run.train(dataset(2))
    history = {name: len(found) for name, found in run.monitor.monitor.history.items()}
    assert history == {"norm": 4, gather.check_op.site.name: 4}
