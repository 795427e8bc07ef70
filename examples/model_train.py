"""`Model.train` with one more callback; a flipped bit in a gradient ends the training before it does harm."""

import mindspore as ms
import numpy as np
from mindspore import nn

from asd import AnomalyDetected, Config
from asd.injection import Fault
from asd.operators import StepMonitor
from asd.operators.inject import FaultInjector


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(16, 32), nn.LayerNorm((32,)), nn.Dense(32, 1)

    def construct(self, x):
        return self.last(self.norm(self.first(x)))


class Losses(ms.train.Callback):
    def on_train_step_end(self, run_context):
        step = run_context.original_args()
        print(f"step {step.cur_step_num}: loss {float(step.net_outputs.asnumpy()):.4f}")


ms.set_seed(1)
ms.set_device("CPU")
ms.set_context(mode=ms.GRAPH_MODE)
random = np.random.default_rng(1)
rows = random.normal(size=(80, 16)).astype(np.float32)
data = ms.dataset.GeneratorDataset([(row, row[:1]) for row in rows], ["x", "y"], shuffle=False).batch(8)
net = Net()
model = ms.train.Model(net, nn.MSELoss(), nn.AdamWeightDecay(net.trainable_params(), learning_rate=1e-2))

# StepMonitor() alone takes its settings from the environment and writes events to ASD_RUN_DIR. It stands first, so that
# no other callback counts a step that was refused. The injector is for drills only.
monitor = StepMonitor(Config(enable=1), sinks=[])
drill = FaultInjector(Fault.parse("gradient:norm:flip=30:step=7"))
try:
    model.train(1, data, callbacks=[monitor, Losses(), drill], dataset_sink_mode=False)
except AnomalyDetected as anomaly:
    event = anomaly.event
    print(f"ended at step {event.step}, update refused: {event.refused}, healed: {event.healed}")
    print(event.sentence())
