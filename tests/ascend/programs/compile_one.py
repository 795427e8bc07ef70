"""Compiles one training step for Ascend, with detection as the environment says; `compile_matrix.py` starts it.

What is tried is that of a user: `StepMonitor.attach`, then the training step. The last line printed is a JSON object:
`error`, the first line of it or empty, and `seconds`, which the processor took to compile.
"""

import json
import os
import sys
import time

import mindspore as ms
from layout import Layout
from mindspore import nn
from mindspore.communication import init
from mindspore.nn.wrap.cell_wrapper import _TrainGradAccuStepCell


def main():
    net_name, layout = sys.argv[1], Layout(**json.loads(sys.argv[2]))
    ms.set_context(mode=ms.GRAPH_MODE, device_target="Ascend", jit_config={"jit_level": layout.jit_level})
    if layout.parallel != "stand_alone":
        init()
        ms.set_auto_parallel_context(**layout.context())
    if net_name == "llama":
        from llama import llama as make
    else:
        import small

        make = getattr(small, net_name)
    net, batch = make(layout)
    optimizer = nn.AdamWeightDecay(net.trainable_params(), 1e-3)
    if layout.stages > 1:
        net = nn.PipelineCell(net, layout.micro_batches)
    step = _step(net, optimizer, layout)
    if os.environ.get("NPU_ASD_ENABLE"):
        from asd.operators import StepMonitor

        StepMonitor().attach(step, optimizer)
    step.set_train()
    began = time.process_time()
    step(batch)
    return time.process_time() - began


def _step(net, optimizer, layout):
    if layout.stages > 1:
        return _TrainGradAccuStepCell(net, optimizer)
    if layout.dynamic_scale:
        return nn.TrainOneStepWithLossScaleCell(net, optimizer, nn.DynamicLossScaleUpdateCell(2.0**16, 2, 1000))
    return nn.TrainOneStepCell(net, optimizer)


if __name__ == "__main__":
    try:
        found = {"error": "", "seconds": round(main(), 1)}
    except Exception as error:  # whatever a compiler may raise is what is asked for
        text = str(error).strip() or type(error).__name__
        found = {"error": f"{type(error).__name__}: {text.splitlines()[0]}", "seconds": 0.0}
        print(text)
    print(json.dumps(found))
    # Not the interpreter's end, where MindSpore would give back a device that there never was.
    sys.stdout.flush()
    os._exit(1 if found["error"] else 0)
