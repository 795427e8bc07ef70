"""What a training leaves behind when it ends, however it ends, and what the next one of its process takes up."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import mindspore as ms
import pytest
from checked_nets import Decoder, dataset, document, fill, train_model, train_sunk
from mindspore import nn, ops
from mindspore.train import Callback, Model

from asd import Config, Level, RankLostError
from asd.operators import StepMonitor
from asd.operators.gate import guard_state
from asd.rundir.names import status_file

pytestmark = pytest.mark.usefixtures("clean")
LOOP = """
import sys
sys.path.insert(0, {tests!r})
import mindspore as ms
from checked_nets import Decoder, fill, ids, targets
from mindspore import nn
from asd.operators import StepMonitor

ms.set_context(mode=1)
net = fill(Decoder())
optimizer = nn.Adam(net.trainable_params(), 1e-3)
step = nn.TrainOneStepCell(net, optimizer)
monitor = StepMonitor()
monitor.attach(step, optimizer)
monitor.step(step(ids(0), targets(0)))
print("a step is made", flush=True)
{ending}
"""


class Ends(Callback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == self.step:
            raise ZeroDivisionError("in a callback")


def status(folder):
    return json.loads(status_file(folder, 0).read_text())


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        pytest.param("raise ZeroDivisionError", 1, id="exception", marks=pytest.mark.slow),
        pytest.param("raise KeyboardInterrupt", -signal.SIGINT, id="interrupt"),
    ],
)
def test_the_status_says_that_a_loop_has_ended_whatever_ended_it(tmp_path, monkeypatch, ending, code):
    monkeypatch.setenv("NPU_ASD_ENABLE", "1")
    monkeypatch.setenv("ASD_RUN_DIR", str(tmp_path))
    program = LOOP.format(tests=str(Path(__file__).parents[1]), ending=ending)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as training:
        assert training.stdout.readline() == "a step is made\n"
        training.communicate(timeout=60)
    assert training.returncode == code
    assert not status(tmp_path)["active"]
    assert status(tmp_path)["steps"] == 1


def test_a_training_of_which_a_rank_is_lost_ends_without_a_word_to_the_device_that_waits_for_it(monkeypatch):
    net = fill(Decoder())
    monitor = StepMonitor(Config(enable=1), sinks=[])
    monitor.attach(net, nn.Adam(net.trainable_params(), 1e-3))
    monitor._training.judging.ranks.lost = RankLostError(0, (1,), 25.0, "rank 1 is stopped")
    monkeypatch.setattr(guard_state, "write", lambda *_: pytest.fail("it would wait for ever"))
    monitor.close()
    assert not monitor.monitor.status.active


@pytest.mark.parametrize("train", [train_model, train_sunk])
def test_the_status_says_that_model_train_has_ended_by_an_exception(train, graph, tmp_path):
    net = fill(Decoder())
    monitor = StepMonitor(Config(protection="document", enable=1, run_dir=str(tmp_path)))
    with pytest.raises(ZeroDivisionError):
        train(net, nn.Adam(net.trainable_params(), 1e-3), dataset(range(3)), monitor, Ends(2))
    assert (status(tmp_path)["active"], status(tmp_path)["steps"]) == (False, 2)
    assert not monitor.monitor.status.active


def test_a_monitor_for_each_model_train_goes_on_quietly_and_tainted_and_with_other_settings_starts_anew(tmp_path):
    net = fill(Decoder())
    model, events, config = Model(net, optimizer=nn.Adam(net.trainable_params(), 1e-3)), [], {"run_dir": str(tmp_path)}
    first, same, other = (
        StepMonitor(Config(protection="document", enable=1, rule=rule, **config), sinks=[events.append])
        for rule in ("adaptive", "adaptive", "silent_check_v3")
    )
    for number, monitor in enumerate((first, same, other)):
        model.train(1, dataset(range(4 * number, 4 * number + 4)), callbacks=[monitor], dataset_sink_mode=False)
        first._training.health.taint(2)
    assert (events, same.monitor.step, other.monitor.status.steps) == ([], 8, 4)
    assert same.monitor.state()["checkpoints"]["norm_out"]["trace"]["n"] == 8
    assert same._training.health.tainted_from == 2


def test_a_training_that_goes_on_in_another_process_without_a_state_is_still_told_so(tmp_path):
    net = fill(Decoder())
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    optimizer.global_step.set_data(ms.Tensor([7], ms.int32))  # as a loaded checkpoint does
    events = []
    StepMonitor(document(run_dir=str(tmp_path)), sinks=[events.append]).attach(net, optimizer)
    assert [event.reason.startswith("resumed at step 7 ") for event in events] == [True]


@pytest.mark.parametrize("judged", [True, False])
def test_a_monitor_that_goes_on_accuses_no_weight_that_grew_in_updates_of_others(judged, tmp_path):
    net = fill(nn.SequentialCell(nn.LayerNorm((4,)), nn.Dense(4, 4)))
    optimizer, found = nn.Adam(net.trainable_params(), [1e-3] * 34 + [1.0] * 34 + [1e-3] * 30), []
    config = document(rule="adaptive", detectors=("state",), run_dir=str(tmp_path))
    first, second = (StepMonitor(each, sinks=[found.append]) for each in (config, config if judged else Config()))
    for monitor, steps in ((first, 17), (second, 17), (first, 15)):
        monitor.attach(net, optimizer)
        for number in range(2 * steps):  # two updates a step
            optimizer(tuple(ops.ones_like(each) for each in optimizer.parameters))
            if number % 2:
                monitor.step()
        monitor.close()
    assert [event for event in found if event.level is Level.ERROR] == []
    assert first.monitor.step == (49 if judged else 83)  # of the other monitor, or by the updates
