"""Trainings that a drill follows: which steps count, and what strikes them."""

import json
import subprocess
import sys
from contextlib import suppress

import mindspore as ms
import numpy as np
import pytest
from checked_nets import batch, fill, one_step_cell, value_and_grad_loop
from mindspore import Tensor, nn
from mindspore.train import Model

from asd import Config, Level
from asd.drill import TrainingPlan
from asd.exporters.run_files.event_log import read_events
from asd.injection import Fault
from asd.operators import StepMonitor, enable
from asd.operators.drill.child import TrainingFollower
from asd.operators.drill.strike import DeviceFault
from asd.operators.private import patches
from asd.operators.rerun import audit
from asd.rundir.names import event_files

STEPS, BAD, DONE = 8, 4, 1000


@pytest.fixture
def follow(tmp_path, monkeypatch, clean):
    """Begins to follow with this fault, and returns the folder of the record."""

    def begin(fault="", **settings):
        settings = {"NPU_ASD_ENABLE": "1", "ASD_ON_ANOMALY": "skip", "ASD_RUN_DIR": str(tmp_path)} | settings
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        follower = TrainingFollower(TrainingPlan(str(tmp_path), STEPS, fault=fault))
        follower.begin()
        return follower

    monkeypatch.setattr("threading.Timer.start", lambda _: None)  # it ends the process
    yield begin
    patches.put_back("drill")


def network():
    net = fill(nn.SequentialCell(nn.Dense(8, 8), nn.LayerNorm((8,)), nn.Dense(8, 1), nn.Flatten()))
    return net, nn.Momentum(net.trainable_params(), 1e-3, 0.9)


def in_turn():
    """Trains two networks that are resumed, each with a monitor."""
    trained = []
    for _ in range(2):
        net, optimizer = network()
        optimizer.global_step.set_data(Tensor([DONE], ms.int32))
        monitor = StepMonitor()
        monitor.attach(net, optimizer)
        trained.append((monitor, value_and_grad_loop(nn.WithLossCell(net, nn.MSELoss()), optimizer)))
    with suppress(SystemExit):
        for number in range(2 * STEPS):
            for monitor, step in trained:
                monitor.step(step(batch(number), Tensor(np.ones((6, 1), np.float32))))


def loop(make=value_and_grad_loop, monitor=None, declares=False):
    """Trains until it is ended, for twice as many steps at most; returns the number of the last one."""
    net, optimizer = network()
    with_loss = nn.WithLossCell(net, nn.MSELoss())
    step = make(with_loss, optimizer)
    if monitor is not None:
        monitor.attach(step if declares else with_loss, optimizer)
    step = monitor.watch_step(step) if declares else step
    for number in range(1, 2 * STEPS):
        try:
            loss = step(batch(number), Tensor(np.ones((6, 1), np.float32)))
            if monitor is not None:
                monitor.step(loss)
        except SystemExit:
            return number
    return None


def of_its_own():
    loop(monitor=StepMonitor())


def without_a_line():
    enable()
    loop()


def by_fit():
    net, optimizer = network()
    rows = [(batch(number).asnumpy(), np.ones((6, 1), np.float32)) for number in range(2 * STEPS)]
    data = ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False)
    with suppress(SystemExit):
        Model(net, nn.MSELoss(), optimizer).fit(1, data, callbacks=StepMonitor(), dataset_sink_mode=False)


TRAININGS = [(of_its_own, "monitor"), (in_turn, "monitor"), (without_a_line, "optimizer"), (by_fit, "callback")]


@pytest.mark.parametrize(("train", "place"), TRAININGS)
def test_refused_steps_count_and_a_fault_strikes_the_step_that_reports_it(train, place, follow, tmp_path):
    follow(f"weight:0.weight:set=nan:duration=99:step={BAD}", ASD_PROTECTION="full")
    train()
    record = json.loads((tmp_path / "record-rank0.json").read_text())
    assert (record["steps"], record["ended"], record["place"]) == (STEPS, True, place)
    events = [each for file in event_files(tmp_path) for each in read_events(file) if each.level is Level.ERROR]
    first = BAD + DONE * (train is in_turn)
    assert (min(each.step for each in events), record["struck"][0]["step"]) == (first, first)
    assert (None in record["losses"]) is (train is without_a_line)  # an optimizer has no loss


def test_a_step_that_is_audited_counts_once(follow, graph, monkeypatch):
    monkeypatch.setattr(audit, "FIRST", {})  # the first one, as on Ascend
    follow(ASD_PROTECTION="full")
    assert loop(one_step_cell, StepMonitor(), declares=True) == STEPS


def test_a_monitor_with_settings_of_its_own_detects_and_reports_as_the_drill_wants_it(follow, tmp_path):
    follow(f"gradient:.:set=nan:step={BAD}", NPU_ASD_ENABLE="0")
    monitor = StepMonitor(Config(enable=2, upper=(9, 8), run_dir="elsewhere", on_anomaly="stop"), sinks=[print])
    found = monitor.config
    assert (found.enabled, found.upper, found.run_dir, found.on_anomaly) == (False, (9, 8), str(tmp_path), "skip")


def test_a_fault_within_a_call_of_several_steps_strikes_from_the_first_of_them_on(follow, tmp_path):
    follower, monitor, (net, optimizer) = follow(f"weight:.:set=9:step={BAD}"), StepMonitor(), network()
    follower.watch(net)
    monitor.attach(net, optimizer)
    with suppress(SystemExit):
        for _ in range(STEPS):
            follower.end_step(None, made=2)  # steps 1 and 2, 3 and 4
    record = json.loads((tmp_path / "record-rank0.json").read_text())
    assert [each["step"] for each in record["struck"]] == [BAD - 1]


LINGERS = """
import contextlib, os, sys, threading, time
from asd.drill import TrainingPlan
from asd.operators.drill import child
child._LINGERS = 0.1
follower = child.TrainingFollower(TrainingPlan(sys.argv[1], 2))
if training := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(training, 0)[1]))
threading.Thread(target=time.sleep, args=(600,)).start()
follower.end_step(None)
if (forked := os.fork()) == 0:
    follower.save()
    os._exit(0)
os.waitpid(forked, 0)
assert not os.listdir(sys.argv[1])
while True:
    with contextlib.suppress(SystemExit):
        follower.end_step(None)
"""


def test_a_forked_training_whose_thread_and_loop_go_on_is_recorded_once_and_a_process_without_steps_is_not(tmp_path):
    words = [sys.executable, "-c", LINGERS, str(tmp_path)]
    assert subprocess.run(words, check=False, timeout=120).returncode == 0
    assert json.loads((tmp_path / "record-rank0.json").read_text()).items() >= {"ended": True, "steps": 2}.items()


def test_numbers_that_float16_has_not_are_set_in_bfloat16():
    *_, value = DeviceFault(Fault.parse("output:x:set=1e9:step=1"), "x").constants((2, 2), ms.bfloat16)
    assert np.isclose(value.astype(ms.float32).asnumpy(), 1e9, rtol=0.01)
