"""What a page about trainings has in mind when it says `net`, `data` and so on."""

import os

os.environ["NPU_ASD_ENABLE"] = "1"

import mindspore
import numpy as np
from mindspore import nn
from mindspore.train import Model  # noqa: F401

from asd.operators import StepMonitor  # noqa: F401

ms = mindspore
ms.set_device("CPU")
ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_seed(1)
net = nn.SequentialCell(nn.Dense(8, 8), nn.LayerNorm((8,)), nn.Dense(8, 1))
loss_fn, epochs = nn.MSELoss(), 1
optimizer = nn.Adam(net.trainable_params(), 1e-2)
rows = np.random.default_rng(1).normal(size=(12, 8)).astype(np.float32)
dataset = ms.dataset.GeneratorDataset([(row, row[:1]) for row in rows], ["x", "y"], shuffle=False).batch(4)
data = [(ms.Tensor(rows[at : at + 4]), ms.Tensor(rows[at : at + 4, :1])) for at in range(0, 12, 4)]
train_step = nn.TrainOneStepCell(nn.WithLossCell(net, loss_fn), optimizer).set_train()
