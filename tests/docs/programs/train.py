"""A small training as a user has it: `train.py STEPS`. Where updates may be skipped, step 7 has labels of nonsense."""

import os
import sys

import mindspore as ms
import numpy as np
from mindspore import nn

STEPS, BATCH = int((sys.argv[1:] or ["10"])[0]), 4

ms.set_device("CPU")
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_seed(1)
layers = [nn.Dense(8, 32), nn.LayerNorm((32,)), nn.Dense(32, 32), nn.LayerNorm((32,)), nn.Dense(32, 1)]
net = nn.SequentialCell(layers)
rows = np.random.default_rng(1).normal(size=(STEPS * BATCH, 8)).astype(np.float32)
labels = rows.sum(axis=1, keepdims=True)
if os.environ.get("ASD_ON_ANOMALY") == "skip":
    labels[6 * BATCH : 7 * BATCH] *= 1e14
data = ms.dataset.GeneratorDataset(list(zip(rows, labels, strict=True)), ["x", "y"], shuffle=False).batch(BATCH)
optimizer = nn.Adam(net.trainable_params(), 1e-2)
ms.train.Model(net, nn.MSELoss(), optimizer).train(1, data, dataset_sink_mode=False)
