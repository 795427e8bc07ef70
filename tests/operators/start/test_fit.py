"""`Model.fit` is judged as `Model.train` is, without a line of code."""

import mindspore as ms
import numpy as np
import pytest
from checked_nets import fill
from mindspore import nn
from mindspore.train import MAE, CheckpointConfig, Model, ModelCheckpoint

from asd.operators.start import autostart

pytestmark = pytest.mark.usefixtures("clean")


def test_checkpoints_of_a_fit_have_the_state_of_their_step(monkeypatch, mode, tmp_path):
    for name, value in {"NPU_ASD_ENABLE": "1", "ASD_RUN_DIR": str(tmp_path / "run")}.items():
        monkeypatch.setenv(name, value)
    rows = [(np.eye(4, dtype=np.float32), np.zeros((4, 4), np.float32))] * 4
    data = [ms.dataset.GeneratorDataset(rows, ["x", "y"], shuffle=False) for _ in range(2)]
    writer = ModelCheckpoint("run", str(tmp_path), CheckpointConfig(save_checkpoint_steps=2))
    net = fill(nn.Dense(4, 4))
    autostart.start()
    try:
        model = Model(net, nn.MSELoss(), nn.Adam(net.trainable_params(), 1e-3), metrics={"mae": MAE()})
        model.fit(1, *data, callbacks=writer, dataset_sink_mode=False)
    finally:
        autostart.stop()
    for step in (2, 4):
        assert (tmp_path / f"run-1_{step}.ckpt.asd-rank0.json").is_file()
