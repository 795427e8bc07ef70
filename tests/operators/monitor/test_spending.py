"""What detection takes between two steps is measured and told."""

import re

import numpy as np
import pytest
from checked_nets import fill
from mindspore import Tensor, nn

from asd import Config
from asd.operators import StepMonitor

pytestmark = pytest.mark.usefixtures("clean")


def test_the_status_tells_what_the_parts_of_a_training_take_between_two_steps(tmp_path):
    net = fill(nn.SequentialCell(nn.Dense(4, 8), nn.LayerNorm((8,)), nn.Dense(8, 1)))
    optimizer = nn.Adam(net.trainable_params(), 1e-3)
    monitor = StepMonitor(Config(enable=1, run_dir=str(tmp_path)), sinks=[])
    monitor.attach(net, optimizer)
    cell = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
    step = monitor.watch_step(cell)
    x, y = Tensor(np.ones((6, 4), np.float32)), Tensor(np.zeros((6, 1), np.float32))
    for _ in range(33):
        monitor.step(step(x, y))
    status = monitor.monitor.status
    assert re.match(
        r"3 % of a step( and more)?: reading and judging [\d.e-]+ %, weights and moments ",
        status.protections["on"]["budget"],
    )
    monitor.close()
