"""What the rules have learned is kept beside each checkpoint file, so a resumed training is not blind.

The limit of the rule `silent_check_v3` follows the values; after the resume it goes on where it was.
"""

import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import nn

from asd import Config
from asd.operators import StepMonitor

CONFIG = Config(enable=1, rule="silent_check_v3", protection="document")


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(16, 32), nn.LayerNorm((32,)), nn.Dense(32, 1)

    def construct(self, x):
        return self.last(self.norm(self.first(x)))


def train(first, last, folder, resume_from=None):
    """Makes the steps `first` to `last` and returns the monitor."""
    net = Net()
    optimizer = nn.AdamWeightDecay(net.trainable_params(), learning_rate=1e-2)
    if resume_from is not None:
        saved = ms.load_checkpoint(str(resume_from))
        ms.load_param_into_net(net, saved)
        ms.load_param_into_net(optimizer, saved)
    rows = np.random.default_rng(1).normal(size=(8 * last, 16)).astype(np.float32)[8 * (first - 1) :]
    data = ms.dataset.GeneratorDataset([(row, row[:1]) for row in rows], ["x", "y"], shuffle=False).batch(8)
    monitor = StepMonitor(CONFIG, sinks=[], resume_from=resume_from)
    keep = ms.train.ModelCheckpoint("net", str(folder), ms.train.CheckpointConfig(save_checkpoint_steps=10))
    ms.train.Model(net, nn.MSELoss(), optimizer).train(1, data, callbacks=[monitor, keep], dataset_sink_mode=False)
    return monitor.monitor


ms.set_device("CPU")
ms.set_context(mode=ms.GRAPH_MODE)
with tempfile.TemporaryDirectory() as folder:
    before = train(1, 20, folder)
    checkpoint = Path(folder) / "net-1_20.ckpt"
    print("kept:", ", ".join(sorted(path.name for path in Path(folder).glob("net-1_20*"))))
    after = train(21, 25, folder, resume_from=checkpoint)
name = next(iter(after.history))
step, _, limit, _ = after.history[name][0]
print(f"limit of {name} after step 20: {before.judges.limit(name):.6g}")
print(f"limit that judged step {step}:  {limit**0.5:.6g}")  # the rule judges the square of the maximum
