"""The detectors in a training: what is checked, what it changes, and what a fault in each place is called."""

import numpy as np
import pytest
from checked_nets import Decoder, assert_same_bits, document, fill, ids, one_step_cell, state_of, targets
from mindspore import Tensor, nn

from asd import Level
from asd.operators import StepMonitor

pytestmark = pytest.mark.usefixtures("clean")


class Training:
    """A decoder that is trained by Adam, with the detectors of `config` or unchecked."""

    def __init__(self, config=None):
        self.net = fill(Decoder())
        self.optimizer = nn.Adam(self.net.trainable_params(), 1e-3)
        self.monitor = None
        if config is not None:
            self.monitor = StepMonitor(config, sinks=[])
            self.monitor.attach(self.net, self.optimizer)
        self._step = one_step_cell(self.net, self.optimizer)
        self.steps = 0

    def step(self):
        loss = self._step(ids(self.steps), targets(self.steps))
        self.steps += 1
        loss.asnumpy()
        return self.monitor.step(loss) if self.monitor is not None else []

    def values(self):
        return state_of(self.net, self.optimizer)


def adaptive(tmp_path, **more):
    return document(rule="adaptive", detectors=("state",), run_dir=str(tmp_path), **more)


@pytest.mark.parametrize("on_anomaly", ["skip", "log"])
def test_every_kind_is_checked_and_nothing_is_changed_and_a_later_training_may_refuse(on_anomaly, mode, tmp_path):
    plain, logged = Training(), Training(adaptive(tmp_path, on_anomaly=on_anomaly))
    for _ in range(8):
        plain.step()
        assert [event for event in logged.step() if event.level is Level.ERROR] == []
    assert_same_bits(logged.values(), plain.values())
    kinds = {reading.checkpoint: reading.kind for reading in logged.monitor.monitor.readings}
    names = {weight.name for weight in logged.net.trainable_params()}
    assert kinds["blocks.0.norm"] == "B"
    assert {name for name, kind in kinds.items() if kind == "W"} == names
    weight = logged.net.blocks[0].up.weight
    logged.monitor.close()
    again = StepMonitor(adaptive(tmp_path), sinks=[])
    again.attach(logged.net, logged.optimizer)
    step = one_step_cell(logged.net, logged.optimizer)
    again.step(step(ids(0), targets(0)))
    watched = [each.checkpoint for each in again.monitor.readings if each.kind == "W"]
    assert sorted(watched) == sorted(names)
    infinite = weight.asnumpy().copy()
    infinite[0, 0] = np.inf
    weight.set_data(Tensor(infinite))
    before = logged.values()
    assert any(event.refused for event in again.step(step(ids(1), targets(1))))
    assert_same_bits(logged.values(), before)
