"""MindSpore's own roll-back takes an anomaly over: its real classes, as far as they run without an Ascend device."""

import mindspore as ms
import pytest
from checked_nets import Decoder, dataset, document, fill
from mindspore import nn
from mindspore.train import CheckpointConfig, Model, ModelCheckpoint, TrainFaultTolerance

from asd import AnomalyDetected
from asd.injection import Fault
from asd.operators import StepMonitor
from asd.operators.drill.inject import FaultInjector

pytestmark = pytest.mark.usefixtures("clean")
STEPS = 8


@pytest.fixture
def switched_on(monkeypatch):
    """Roll-backs without the two things that only an Ascend device has: its data channel and accumulated gradients."""
    monkeypatch.setenv("MS_ENABLE_TFT", "{TRE:1}")
    monkeypatch.setattr("mindspore.train.model.clean_tdt_channel", lambda *_: 0)
    monkeypatch.setattr("mindspore.train.callback._train_fault_tolerance.reset_params", lambda *_: 0)


class Training:
    """Eight steps with a checkpoint after every second one, and a fault in step 5."""

    def __init__(self, folder, duration=1):
        self.events, self.loads = [], 0
        self.folder = folder
        net = fill(Decoder())
        optimizer = nn.SGD(net.trainable_params(), 1e-2)
        self.monitor = StepMonitor(document(on_anomaly="stop", upper=(1000, 100)), sinks=[self.events.append])
        injector = FaultInjector(Fault.parse(f"gradient:norm_out:flip=30:step=5:duration={duration}"))
        settings = CheckpointConfig(save_checkpoint_steps=2, append_info=["epoch_num", "step_num"])
        again = TrainFaultTolerance(str(folder), ckpt_load_fn=self.load)
        self.callbacks = [ModelCheckpoint("net", str(folder), settings), self.monitor, injector, again]
        self.model = Model(net, optimizer=optimizer)

    def load(self):
        self.loads += 1
        return ms.load_checkpoint(str(max(self.folder.glob("*.ckpt"), key=lambda file: file.stat().st_mtime_ns))), False

    def run(self):
        data = dataset(range(1, STEPS + 1))
        self.model.train(1, data, callbacks=self.callbacks, dataset_sink_mode=False)
        return self


def test_the_training_is_rolled_back_and_goes_on_to_its_end(switched_on, tmp_path):
    training = Training(tmp_path).run()
    assert training.loads == 1
    assert {(event.kind, event.step) for event in training.events} == {("anomaly", 5)}
    assert training.monitor.monitor.step == STEPS
    assert training.monitor.monitor.status.refused == 1


def test_a_fault_that_comes_again_in_the_same_step_is_not_rolled_back_for_ever(switched_on, tmp_path):
    training = Training(tmp_path, duration=1000)
    with pytest.raises(AttributeError) as caught:  # MindSpore's handler asks MindIO about any other error
        training.run()
    assert type(caught.value.__context__) is AnomalyDetected
    assert training.loads >= 1


def test_where_its_callback_is_missing_nothing_is_handed_over(switched_on, tmp_path):
    training = Training(tmp_path)
    training.callbacks.pop()
    with pytest.raises(AnomalyDetected) as caught:
        training.run()
    assert type(caught.value) is AnomalyDetected
