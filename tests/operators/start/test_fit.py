"""`Model.fit` is judged as `Model.train` is, without a line of code."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import fill
from mindspore import nn, ops
from mindspore.train import MAE, Callback, CheckpointConfig, Model, ModelCheckpoint

from asd import AnomalyDetected

pytestmark = pytest.mark.usefixtures("clean")


class Spoils(Callback):
    """Has weights become infinite in the second epoch."""

    def on_train_epoch_begin(self, run_context):
        given = run_context.original_args()
        if given.cur_epoch_num == 2:
            weight = given.optimizer.parameters[-1]
            weight.set_data(ops.full_like(weight, np.inf))


def fit(epochs, *callbacks):
    rows = [(np.eye(4, dtype=np.float32), np.zeros((4, 4), np.float32))] * 4
    data = [ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False) for _ in range(2)]
    net = fill(nn.SequentialCell(nn.LayerNorm((4,)), nn.Dense(4, 4)))
    model = Model(net, nn.MSELoss(), nn.Adam(net.trainable_params(), 1e-3), metrics={"mae": MAE()})
    model.fit(epochs, *data, callbacks=[*callbacks], dataset_sink_mode=False)


def test_after_an_evaluation_a_fit_is_judged_as_before(monkeypatch, mode, autostarted):
    monkeypatch.setenv("ASD_ON_ANOMALY", "stop")
    with pytest.raises(AnomalyDetected) as ended:
        fit(3, Spoils())
    assert ended.value.event.refused


def test_checkpoints_of_a_fit_have_the_state_of_their_step(mode, tmp_path, autostarted):
    fit(1, ModelCheckpoint("run", str(tmp_path), CheckpointConfig(save_checkpoint_steps=2)))
    for step in (2, 4):
        assert (tmp_path / f"run-1_{step}.ckpt.asd-rank0.json").is_file()
